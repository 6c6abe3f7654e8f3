"""Following: a run's events, and the feed of all runs, as server-sent events."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from aiohttp import web

from ...model.answers import feed_entry
from ...model.errors import ErrorCode, SupervisorError, invalid
from ..requests import queries
from ..requests.errors import error_form, to_json
from ..requests.peers import listed_owner
from ..service.route import OF_A_RUN, RUN, STREAM, Route
from ..service.service import Call
from .sse import Stream, batches, deliver, message

_PAGE = 64  # events read ahead of a follower


def wants_stream(request: web.Request) -> bool:
    """Does the client ask for server-sent events?"""
    return STREAM in request.headers.get("Accept", "").lower()


async def follow(call: Call) -> web.StreamResponse:
    """Every event of a run after the cursor, each once, until the run is over."""
    run_id = await call.run()
    after = _cursor(call)
    # A wrong cursor gets its own status: once the stream has begun it would be too late for that.
    await call.supervisor.events(run_id, after=after, limit=1)
    return await _stream(call, _events(call, run_id, after))


async def follow_feed(call: Call) -> web.StreamResponse:
    """Every change of state after the cursor, as it is committed."""
    owner = listed_owner(call.caller, call.query.get("owner"), call.query.get("namespace"))
    return await _stream(call, _entries(call, _cursor(call), owner))


async def _events(call: Call, run_id: str, after: int) -> AsyncGenerator[bytes, None]:
    query = call.query
    following = call.supervisor.follow_pages(
        run_id, after=after, kinds=query.get("kind"), output=query.get("output", True), limit=_PAGE
    )
    async with aclosing(following) as pages:
        async for page in pages:
            messages = (message(event.kind, event.to_json(), event.seq) for event in page.events)
            for batch in batches(messages):
                yield batch
    seen = await call.supervisor.inspect(run_id)
    yield message("end", to_json({"run_id": run_id, "state": seen.state.value}))


async def _entries(call: Call, after: int, owner: str | None) -> AsyncGenerator[bytes, None]:
    async with aclosing(call.supervisor.follow_feed(after=after, owner=owner)) as pages:
        async for page in pages:
            yield b"".join(message("change", to_json(feed_entry(entry)), entry.position) for entry in page)


async def _stream(call: Call, source: AsyncGenerator[bytes, None]) -> web.StreamResponse:
    service = call.service
    with call.place_to_wait():
        stream = await Stream.open(call.request, service.stall)
        with service.follower():
            try:
                if not await deliver(service, stream, source):
                    await stream.send(message("bye", to_json({"reason": "draining"})))
            except SupervisorError as error:
                closing = error.code is ErrorCode.SUPERVISOR_CLOSED
                word, form = ("bye", {"reason": "closed"}) if closing else ("error", error_form(error))
                await stream.send(message(word, to_json(form)))
    stream.response.force_close()
    return stream.response


def _cursor(call: Call) -> int:
    """``Last-Event-ID``, which a client that reconnects sends by itself, wins over ``after``."""
    last = call.request.headers.get("Last-Event-ID")
    if last is None:
        return int(call.query.get("after", 0))
    try:
        return int(queries.AFTER.parse(last))
    except ValueError as error:
        raise invalid("Last-Event-ID", str(error)) from None


routes = [
    Route(
        "GET",
        f"{RUN}/follow",
        follow,
        "A run's events as they come, until it is over, as server-sent events",
        {200: "event"},
        query=(queries.AFTER, queries.KIND, queries.OUTPUT),
        media_type=STREAM,
        failures=(*OF_A_RUN, ErrorCode.CURSOR_AHEAD, ErrorCode.RUN_COLLECTED),
    ),
    Route(
        "GET",
        "/v1/feed/follow",
        follow_feed,
        "Changes of state of all runs as they are committed, as server-sent events",
        {200: "feed"},
        query=(queries.AFTER, queries.OWNER, queries.NAMESPACE),
        media_type=STREAM,
        failures=(ErrorCode.OWNER_MISMATCH,),
    ),
]
