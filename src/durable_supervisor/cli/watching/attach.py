"""``attach``: a run on this terminal, as it was and is, and what is typed to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from durable_supervisor.model.errors import invalid
from durable_supervisor.model.events import Kind

from ..opening.session import drive, observing
from ..options import parse
from ..options.declared import Option
from ..options.shared import After, Call, Json, Raw, RunId, Settings, SocketPath, StateDir, settings
from ..output import describe, out
from ..output.while_read import while_read
from ..reading.events import recorded
from ..reading.last_lines import LastLines
from ..rendering.printer import Printer, terminals
from ..terminal import keys
from ..terminal.interactive import Left
from ..terminal.viewing import Manner, Program, farewell, hold

if TYPE_CHECKING:
    from durable_supervisor.api.verbs import Reading
    from durable_supervisor.model.events import Event
    from durable_supervisor.model.view import RunView


_Tail = Annotated[str | None, Option("--tail", metavar="N", help="Begin with the last N lines.")]
_ReadOnly = Annotated[bool, Option("--read-only", "-r", help="Watch only; nothing typed is sent.")]
_Steal = Annotated[bool, Option("--steal", help="Take the input over from another terminal.")]
_DetachKey = Annotated[
    str,
    Option("--detach-key", metavar="KEYS", help="What detaches from a program with a terminal."),
]
_Quiet = Annotated[bool, Option("--quiet", "-q", help="Only the output, no remarks on stderr.")]
# Told by the timeline itself; the verdict on a run that lost its worker may be in no log yet.
_VERDICTS = ("run.not_started", "run.unknown", "run.quarantined", "run.resolved")


def attach(
    call: Call,
    run: RunId,
    after: After = "0",
    tail: _Tail = None,
    read_only: _ReadOnly = False,
    steal: _Steal = False,
    detach_key: _DetachKey = keys.DEFAULT,
    raw: Raw = False,
    quiet: _Quiet = False,
    json: Json = False,
    state_dir: StateDir = None,
    socket: SocketPath = None,
) -> int:
    """Show a run's output so far, then live; type to it.

    A program with a terminal (--pty) gets every key; ctrl-] d detaches, ctrl-]
    twice sends one. A program with open stdin gets the lines you type; Ctrl-C
    detaches. The run goes on either way. When it is over, leaves with 0; 'wait' gives the
    program's code.

    \b
    Example:
      dsup attach 4f7k
      dsup attach 4f7k --steal
    """
    shared = settings(call, json, state_dir, socket)
    keys.parse(detach_key)
    if tail is not None and parse.whole("after", after):
        raise invalid("tail", "and --after exclude each other", "give one of them")
    lines = None if tail is None else parse.whole("tail", tail)
    manner = Manner(detach_key, read_only, steal, quiet or json)
    printer = Printer(escape=terminals(raw=raw), facts=not quiet)
    return drive(_attach(shared, run, manner, _Shown(shared, printer, parse.whole("after", after)), lines))


class _Shown:
    """What a viewer without a raw terminal has seen: escaped text, or JSON."""

    def __init__(self, shared: Settings, printer: Printer, seq: int) -> None:
        self.seq = seq
        self.kind = ""
        self.remarks = printer.facts and not shared.json
        self._shared = shared
        self._printer = printer

    async def show(self, event: Event) -> None:
        if self._shared.json:
            await out.write_patiently(event.to_json() + b"\n")
        else:
            await self._printer.show(event)
        self.kind = event.kind

    async def finish(self) -> None:
        await self._printer.finish()
        await self._printer.end_line()


async def _attach(shared: Settings, run: str, manner: Manner, shown: _Shown, lines: int | None) -> int:
    async with observing(shared) as observer, while_read():
        seen = await observer.inspect(run)
        before = [] if lines is None else await _last_lines(observer, seen.id, lines, shown)
        program = program_of(seen)
        async with observer.attach(seen.id, after=shown.seq) as attached:
            left = await hold(attached, program, manner, shown.show, before)
        await shown.finish()
        if left is Left.ENDED:
            await _tell_the_end(observer, seen.id, shown, raw=program.terminal)
    return farewell(left, run, attached.cursor, quiet=manner.quiet)


def program_of(seen: RunView) -> Program:
    """What there is to attach to: of an imported run nothing, and its output does not get at our terminal."""
    here = seen.imported is None
    return Program(
        terminal=here and seen.pty is not None, stdin=here and seen.stdin == "open", head=seen.head
    )


async def _last_lines(observer: Reading, run: str, count: int, shown: _Shown) -> list[Event]:
    """The last lines of what was printed; the live view begins after them."""
    last = LastLines(count)
    async for event in recorded(observer, run, kinds=frozenset({Kind.OUTPUT, Kind.OUTPUT_DROPPED})):
        last.add(event)
        shown.seq = event.seq
    return last.events()


async def _tell_the_end(observer: Reading, run: str, shown: _Shown, *, raw: bool) -> None:
    if not shown.remarks:
        return
    over = await observer.inspect(run)
    if over.outcome is None and shown.kind not in _VERDICTS:
        out.note(f"{over.id} is {over.state.value} ({over.reason}); 'dsup inspect {over.id}' tells more")
    elif raw and out.is_terminal(out.STDOUT):  # no remark has told it
        out.note(f"{over.id}: {describe.state_word(over.to_dict())}")
