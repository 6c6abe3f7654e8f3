"""``logs``: what the program printed, and nothing else on stdout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from durable_supervisor.model.errors import invalid
from durable_supervisor.model.events import Kind

from ..opening.session import drive, observing
from ..options import parse
from ..options.declared import Option, one_of
from ..options.shared import Call, Json, Raw, RunOrBundle, Settings, SocketPath, StateDir, settings
from ..output import exit_codes, out
from ..output.while_read import while_read
from ..rendering.printer import Printer
from .events import recorded, tell_if_lost
from .last_lines import LastLines

if TYPE_CHECKING:
    from durable_supervisor.model.events import Event

_KINDS = frozenset({Kind.OUTPUT, Kind.OUTPUT_DROPPED})
_Follow = Annotated[bool, Option("--follow", "-f", help="Go on with what is still to come.")]
_Stream = Annotated[
    str,
    Option(
        "--stream",
        metavar="stdout|stderr|both",
        help="Which stream.",
        complete=one_of("stdout", "stderr", "both"),
    ),
]
_Tail = Annotated[str | None, Option("--tail", metavar="N", help="Begin with the last N lines.")]


def logs(
    call: Call,
    run: RunOrBundle,
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
    shared = settings(call, json, state_dir, socket)
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
            out.write_bytes(event.to_json() + b"\n")
        else:
            await printer.show(event)

    after = 0
    async with observing(shared, run) as observer, while_read():
        if tail is not None:
            last = LastLines(tail)
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
