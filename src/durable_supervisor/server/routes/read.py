"""Reading: one verb, one handler."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from aiohttp import web

from ...model.answers import feed_entry
from ...model.errors import ErrorCode
from ...model.page import Page
from ...model.schema import schema_name
from ..following.follow import follow, follow_feed, wants_stream
from ..requests import queries
from ..requests.errors import answer, answer_text, to_json
from ..requests.peers import listed_owner
from ..service.route import OF_A_RUN, RUN, Route
from ..service.service import Call

DEFAULT_PAGE = 100
# Entries read at once: big ones are counted before too many are in memory, and others get their turn.
_SLICE = 64
_MAX_PAGE_BYTES = 4 * 1024 * 1024
# Beyond this a page ends in the middle of what was read at once: as JSON a byte can take up to eight.
_MOST_PAGE_BYTES = 2 * _MAX_PAGE_BYTES


async def list_runs(call: Call) -> web.Response:
    """Runs, newest first: as many as fit a page of some MiB, and at least one."""
    query = call.query
    full, limit, before = query.get("detail") == "full", query.get("limit", DEFAULT_PAGE), query.get("before")
    owner = listed_owner(call.caller, query.get("owner"), query.get("namespace"))
    found: list[Any] = []
    size = 0
    while True:
        page = await call.supervisor.list(
            limit=min(_SLICE, limit - len(found)),
            before=before,
            states=query.get("state"),
            label=query.get("label"),
            owner=owner,
            collected=query.get("collected", False),
        )
        form: dict[str, Any] = page.to_dict()
        runs = [view.to_dict() for view in page.runs] if full else form["runs"]
        found += runs
        size += sum(len(to_json(run)) for run in runs)
        before = page.next_before
        if before is None or len(found) >= limit or size >= _MAX_PAGE_BYTES:
            return answer({**form, "runs": found})


async def feed(call: Call) -> web.StreamResponse:
    """Changes of state of all runs."""
    if wants_stream(call.request):
        return await follow_feed(call)
    query = call.query
    after = query.get("after", 0)
    owner = listed_owner(call.caller, query.get("owner"), query.get("namespace"))
    entries = await call.supervisor.feed(after=after, limit=query.get("limit", DEFAULT_PAGE), owner=owner)
    return answer(
        {
            "schema": schema_name("feed-page"),
            "entries": [feed_entry(entry) for entry in entries],
            "next_after": entries[-1].position if entries else after,
        }
    )


async def inspect(call: Call) -> web.Response:
    """Everything known about one run."""
    return answer((await call.supervisor.inspect(await call.run())).to_dict())


async def events(call: Call) -> web.StreamResponse:
    """One page of a run's events."""
    if wants_stream(call.request):
        return await follow(call)
    query = call.query
    run_id = await call.run()
    found, page = await _bounded_page(
        call,
        run_id,
        query.get("after", 0),
        query.get("limit", DEFAULT_PAGE),
        query.get("kind"),
        query.get("output", True),
    )
    return answer_text(_page_json(run_id, found, page))


async def _bounded_page(
    call: Call, run_id: str, after: int, limit: int, kinds: Collection[str] | None, output: bool
) -> tuple[list[bytes], Page]:
    """As many events, as JSON, as fit a page of some MiB, and at least one; with the page they end in."""
    found: list[bytes] = []
    size = 0
    while True:
        page = await call.supervisor.events(
            run_id, after=after, limit=min(_SLICE, limit - len(found)), kinds=kinds, output=output
        )
        for event in page.events:
            found.append(event.to_json())
            size += len(found[-1])
            if size >= _MOST_PAGE_BYTES and event is not page.events[-1]:
                return found, Page([], event.seq, page.head, page.generation, end=False)
        moved, after = page.next_after > after, page.next_after
        if page.end or not moved or len(found) >= limit or size >= _MAX_PAGE_BYTES:
            return found, page


def _page_json(run_id: str, events: list[bytes], page: Page) -> bytes:
    head = to_json({"schema": schema_name("page"), "run_id": run_id})
    tail = to_json(
        {
            "next_after": page.next_after,
            "head": page.head,
            "generation": page.generation,
            "end": page.end,
        }
    )
    return b'%b,"events":[%b],%b' % (head[:-1], b",".join(events), tail[1:])


async def wait(call: Call) -> web.Response:
    """The run once it is over."""
    run_id = await call.run()
    waiting = call.supervisor.wait(run_id, timeout=call.query.get("timeout"))
    with call.place_to_wait():
        return answer((await call.service.unless_draining(waiting)).to_dict())


_WHOSE = (queries.OWNER, queries.NAMESPACE)
_LISTING = (queries.LIMIT, queries.BEFORE, queries.STATE, queries.LABEL)
_PAGING = (queries.AFTER, queries.LIMIT)

routes = [
    Route(
        "GET",
        "/v1/list",
        list_runs,
        "Runs, newest first",
        {200: "list"},
        query=(*_LISTING, queries.COLLECTED, queries.DETAIL, *_WHOSE),
        failures=(ErrorCode.OWNER_MISMATCH,),
    ),
    Route(
        "GET",
        "/v1/feed",
        feed,
        "Changes of state of all runs, in the order of their commits",
        {200: "feed-page"},
        query=(*_PAGING, *_WHOSE),
        failures=(ErrorCode.OWNER_MISMATCH,),
    ),
    Route(
        "GET",
        f"{RUN}/inspect",
        inspect,
        "Everything known about one run",
        {200: "inspect"},
        failures=OF_A_RUN,
    ),
    Route(
        "GET",
        f"{RUN}/events",
        events,
        "A page of a run's events; with Accept: text/event-stream the same as follow",
        {200: "page"},
        query=(*_PAGING, queries.KIND, queries.OUTPUT),
        failures=(*OF_A_RUN, ErrorCode.CURSOR_AHEAD, ErrorCode.RUN_COLLECTED),
    ),
    Route(
        "GET",
        f"{RUN}/wait",
        wait,
        "The run once it is over",
        {200: "inspect"},
        query=(queries.TIMEOUT,),
        failures=(*OF_A_RUN, ErrorCode.OUTCOME_UNKNOWN, ErrorCode.WAIT_TIMEOUT),
    ),
]
