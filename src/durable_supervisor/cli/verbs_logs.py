"""``logs``: what the program printed, and nothing else on stdout."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Annotated

import typer

from durable_supervisor.model.errors import invalid
from durable_supervisor.model.events import Kind

from . import exit_codes, out, parse
from .options import Json, Raw, RunId, Settings, SocketPath, StateDir, settings
from .printer import Printer
from .session import drive, observing
from .verbs_events import recorded, tell_if_lost

if TYPE_CHECKING:
    from durable_supervisor.model.events import Event

_KINDS = frozenset({Kind.OUTPUT, Kind.OUTPUT_DROPPED})
_Follow = Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is still to come.")]
_Stream = Annotated[str, typer.Option("--stream", metavar="stdout|stderr|both", help="Which stream.")]
_Tail = Annotated[str | None, typer.Option("--tail", metavar="N", help="Begin with the last N lines.")]


def logs(
    context: typer.Context,
    run: RunId,
    follow: _Follow = False,
    stream: _Stream = "both",
    tail: _Tail = None,
    raw: Raw = False,
    json: Json = False,
    state_dir: StateDir = None,
    socket: SocketPath = None,
) -> int:
    """Print what a run's program printed.

    Both streams come in order, on stdout. Control characters are shown as
    escapes, so that no program can play tricks on your terminal; --raw gives the
    exact bytes.

    \b
    Example:
      dsup logs 4f7k --tail 20 --follow
      dsup logs 4f7k --stream stdout --raw > out.bin
    """
    shared = settings(context, json, state_dir, socket)
    if stream not in ("stdout", "stderr", "both"):
        raise invalid("stream", "must be stdout, stderr or both")
    lines = None if tail is None else parse.whole("tail", tail)
    printer = Printer(escape=frozenset() if raw else frozenset({out.STDOUT}), merge=True)
    return drive(_logs(shared, run, stream, lines, printer, follow=follow))


async def _logs(
    shared: Settings, run: str, stream: str, tail: int | None, printer: Printer, *, follow: bool
) -> int:
    nothing = True

    async def show(event: Event) -> None:
        nonlocal nothing
        nothing = False
        if stream not in ("both", event.stream):
            return
        if shared.json:
            out.ndjson(event.to_dict())
        else:
            await printer.show(event)

    after = 0
    async with observing(shared) as observer:
        if tail is not None:
            last = _LastLines(tail)
            async for event in recorded(observer, run, kinds=_KINDS):
                after = event.seq
                if stream in ("both", event.stream):
                    last.add(event)
            for event in last.events():
                await show(event)
        if tail is None or follow:
            source = (
                observer.follow(run, after=after, kinds=_KINDS)
                if follow
                else recorded(observer, run, after, kinds=_KINDS)
            )
            async for event in source:
                await show(event)
        await printer.finish()
        if nothing and not shared.json:
            await tell_if_lost(observer, run)
    return exit_codes.OK


class _LastLines:
    """Keeps the events that hold the last ``count`` lines, and no more in memory."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._events: deque[Event] = deque()
        self._newlines = 0

    def add(self, event: Event) -> None:
        self._events.append(event)
        self._newlines += event.data.count(b"\n")
        while len(self._events) > 1 and self._newlines - self._events[0].data.count(b"\n") > self._count:
            self._newlines -= self._events.popleft().data.count(b"\n")

    def events(self) -> list[Event]:
        """What was kept, its first event cut to where the last lines begin."""
        from durable_supervisor.model.events import Event as Made

        if self._count == 0:
            return []
        # An unfinished last line counts as a line of its own, as in tail(1).  A dropped range has no data.
        last = next((event.data for event in reversed(self._events) if event.data), b"\n")
        excess = self._newlines + (not last.endswith(b"\n")) - self._count
        kept: list[Event] = []
        for event in self._events:
            cut = 0
            while excess > 0 and (found := event.data.find(b"\n", cut)) >= 0:
                cut = found + 1
                excess -= 1
            if excess > 0 and event.data:
                continue  # the first of the last lines begins in a later event
            if not cut:
                kept.append(event)
            elif cut < len(event.data):
                detail = {**event.detail, "offset": (event.offset or 0) + cut}
                kept.append(
                    Made(event.seq, event.wall_ns, event.elapsed_ns, event.kind, detail, event.data[cut:])
                )
        return kept
