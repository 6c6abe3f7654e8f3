"""``replay``: a run as it was seen on a terminal."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from . import exit_codes, out, parse
from .options import After, Json, Raw, RunId, Settings, SocketPath, StateDir, settings
from .printer import Printer, terminals
from .session import drive, observing
from .verbs_events import recorded

if TYPE_CHECKING:
    from durable_supervisor.model.events import Event

_Speed = Annotated[str, typer.Option("--speed", metavar="X", help="2 is twice as fast, 0.5 half as fast.")]
_Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only the output, no remarks on stderr.")]


async def _show(shared: Settings, event: Event, printer: Printer) -> None:
    if shared.json:
        await out.write_patiently(out.json_line(event.to_dict()))
    else:
        await printer.show(event)


def replay(
    context: typer.Context,
    run: RunId,
    speed: _Speed = "1",
    after: After = "0",
    raw: Raw = False,
    quiet: _Quiet = False,
    json: Json = False,
    state_dir: StateDir = None,
    socket: SocketPath = None,
) -> int:
    """Show a run again with its original timing. Nothing is executed.

    \b
    Example:
      dsup replay 4f7k --speed 10
    """
    shared = settings(context, json, state_dir, socket)
    printer = Printer(escape=terminals(raw=raw), facts=not quiet)
    return drive(_replay(shared, run, parse.factor("speed", speed), parse.whole("after", after), printer))


async def _replay(shared: Settings, run: str, speed: float, after: int, printer: Printer) -> int:
    loop = asyncio.get_running_loop()
    began: float | None = None
    first = last = 0
    async with observing(shared) as observer:
        async for event in recorded(observer, run, after):
            if began is None or event.elapsed_ns < last:  # a second attempt counts from 0 again
                began, first = loop.time(), event.elapsed_ns
            last = event.elapsed_ns
            # Against the beginning, not the last event: printing takes time and must not add up.
            await asyncio.sleep(max(0.0, began + (event.elapsed_ns - first) / 1e9 / speed - loop.time()))
            await _show(shared, event, printer)
        await printer.finish()
        await printer.end_line()
    return exit_codes.OK
