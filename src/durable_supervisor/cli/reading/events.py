"""``events`` and ``feed``: pages and tails of what happened."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

from durable_supervisor.model.errors import invalid
from durable_supervisor.model.events import ALL_KINDS

from ..opening.session import drive, observing
from ..options import parse
from ..options.declared import Option, one_of
from ..options.shared import After, Call, Json, RunOrBundle, Settings, SocketPath, StateDir, settings
from ..output import exit_codes, out
from ..output.escape import escape_text
from ..output.while_read import while_read
from ..rendering.timeline import Timeline, feed_line

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from durable_supervisor.api.verbs import Reading
    from durable_supervisor.model.events import Event

_PAGE = 1000
_FEED_POLL_SECONDS = 0.25  # the feed is SQLite: there is nothing to be woken by
_Limit = Annotated[str | None, Option("--limit", "-n", metavar="N", help="At most this many.")]
_Kinds = Annotated[
    list[str] | None,
    Option(
        "--kind",
        metavar="KIND",
        help="Only this kind, such as output; may repeat.",
        complete=one_of(*sorted(ALL_KINDS)),
    ),
]
_Follow = Annotated[bool, Option("--follow", "-f", help="Go on with what is still to come.")]
_NoOutput = Annotated[bool, Option("--no-output", help="Leave the program's output out.")]
_Position = Annotated[str, Option("--after", metavar="POSITION", help="Begin after this position.")]


def events(
    call: Call,
    run: RunOrBundle,
    after: After = "0",
    limit: _Limit = None,
    kind: _Kinds = None,
    follow: _Follow = False,
    no_output: _NoOutput = False,
    json: Json = False,
    state_dir: StateDir = None,
    socket: SocketPath = None,
) -> int:
    """Print a run's events in order.

    Each has a number; --after that number goes on where you stopped.

    \b
    Example:
      dsup events 4f7k --after 120 --limit 50
      dsup events 4f7k --follow --json | jq -c .kind
    """
    shared = settings(call, json, state_dir, socket)
    start = parse.whole("after", after)
    most = None if limit is None else parse.whole("limit", limit, least=1)
    kinds = _kinds(kind)
    return drive(_events(shared, run, start, most, kinds, follow=follow, output=not no_output))


def _kinds(words: list[str] | None) -> frozenset[str] | None:
    for word in words or ():
        if word not in ALL_KINDS:
            raise invalid("kind", "is not an event kind", f"one of {', '.join(sorted(ALL_KINDS))}")
    return frozenset(words) if words else None


async def _events(
    shared: Settings,
    run: str,
    after: int,
    limit: int | None,
    kinds: frozenset[str] | None,
    *,
    follow: bool,
    output: bool,
) -> int:
    timeline = Timeline()
    left = limit
    nothing = True
    async with observing(shared, run) as observer, while_read():
        source = (
            observer.follow(run, after=after, kinds=kinds, output=output)
            if follow
            else recorded(observer, run, after, kinds=kinds, output=output, limit=limit)
        )
        async for event in source:
            if shared.json:
                out.write_bytes(event.to_json() + b"\n")
            else:
                out.write_text(timeline.lines(event))
            nothing = False
            left = None if left is None else left - 1
            if left == 0:
                break
        if nothing and not shared.json:
            await tell_if_lost(observer, run)
    return exit_codes.OK


async def tell_if_lost(observer: Reading, run: str) -> None:
    """Nothing to show may mean that nothing happened, or that its log is gone: say which."""
    health = (await observer.inspect(run)).log_health or {}
    if health.get("status", "ok") != "ok":
        out.note(escape_text(f"its log is {health['status']}; 'dsup inspect {run}' has what is still known"))


async def recorded(
    observer: Reading,
    run: str,
    after: int = 0,
    *,
    kinds: frozenset[str] | None = None,
    output: bool = True,
    limit: int | None = None,
) -> AsyncIterator[Event]:
    """The events that exist now, page by page; does not wait for more."""
    while True:
        size = _PAGE if limit is None else min(limit, _PAGE)
        page = await observer.events(run, after=after, limit=size, kinds=kinds, output=output)
        for event in page.events:
            yield event
        if page.end or page.next_after >= page.head or page.next_after == after:
            return
        after = page.next_after


def feed(
    call: Call,
    after: _Position = "0",
    limit: _Limit = None,
    follow: _Follow = False,
    json: Json = False,
    state_dir: StateDir = None,
    socket: SocketPath = None,
) -> int:
    """Print the state changes of all runs.

    Each has a position; --after that position goes on where you stopped. It has
    what an owner has noted; where none is alive, 'reconcile' brings it up to date.

    \b
    Example:
      dsup feed --after 4100 --follow --json
    """
    shared = settings(call, json, state_dir, socket)
    most = None if limit is None else parse.whole("limit", limit, least=1)
    return drive(_feed(shared, parse.whole("after", after), most, follow=follow))


async def _feed(shared: Settings, after: int, limit: int | None, *, follow: bool) -> int:
    from durable_supervisor.model.answers import feed_entry

    left = limit
    async with observing(shared) as observer, while_read():
        while left is None or left > 0:
            entries = await observer.feed(after=after, limit=_PAGE if left is None else min(left, _PAGE))
            for entry in entries:
                form = feed_entry(entry)
                if shared.json:
                    out.ndjson(form)
                else:
                    out.line(feed_line(form))
                after = entry.position
            left = None if left is None else left - len(entries)
            if not entries:
                if not follow:
                    break
                await asyncio.sleep(_FEED_POLL_SECONDS)
    return exit_codes.OK
