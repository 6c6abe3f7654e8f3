"""How a run is shown and left: on a raw terminal, or as escaped text with remarks."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from durable_supervisor.model.errors import SupervisorError
from durable_supervisor.model.events import Kind

from ..output import describe, exit_codes, out
from ..output.style import Style
from . import keys, terminal
from .interactive import Conversation, Left
from .screen import Modes, Scrollback

if TYPE_CHECKING:
    from durable_supervisor.api.attached import Attached
    from durable_supervisor.model.events import Event

    from .interactive import Show


@dataclass(frozen=True, slots=True)
class Program:
    """What the run takes: ``terminal``, or at least an open ``stdin``.  ``head``: what was printed before."""

    terminal: bool
    stdin: bool
    head: int


@dataclass(frozen=True, slots=True)
class Manner:
    """How a person wants to attach."""

    detach_key: str = keys.DEFAULT
    read_only: bool = False
    steal: bool = False
    quiet: bool = False


class RawView:
    """The program's own bytes, on a terminal that takes them all."""

    def __init__(self, head: int) -> None:
        self._head = head
        self._modes = Modes()
        self._scrollback = Scrollback()

    async def show(self, event: Event) -> None:
        if event.kind == Kind.OUTPUT_DROPPED:
            _say_raw(describe.event_text(event.kind, event.detail))
        if event.kind != Kind.OUTPUT:
            return
        past = event.seq <= self._head
        data = self._scrollback.feed(event.data) if past else self._scrollback.finish() + event.data
        self._modes.feed(data)
        await out.write_patiently(data)

    def leave(self) -> None:
        """Give the terminal back in the modes that a shell expects."""
        with suppress(OSError, SupervisorError):  # it may have hung up
            out.write_bytes(self._modes.undo() + b"\n")


async def hold(
    attached: Attached, program: Program, manner: Manner, show: Show, before: Sequence[Event] = ()
) -> Left:
    """Show the run and, for a person at a terminal, send what is typed.

    ``show`` prints what does not go to a terminal as raw bytes; ``before`` comes first.
    """
    person = terminal.is_interactive()
    if not (program.terminal and out.is_terminal(out.STDOUT)):
        typing = person and program.stdin and not manner.read_only
        lines = keys.DetachKeys(b"") if typing else None  # Ctrl-C leaves
        return await Conversation(attached, _say, lines, steal=manner.steal).hold(show, before)
    view = RawView(program.head)
    try:
        if person:
            return await _hold_raw(attached, manner, view, before)
        return await Conversation(attached, _say).hold(view.show, before)
    finally:
        view.leave()


async def _hold_raw(attached: Attached, manner: Manner, view: RawView, before: Sequence[Event]) -> Left:
    detach = keys.DetachKeys(keys.parse(manner.detach_key))
    if not manner.quiet:
        _say(f"attached; {keys.shown(manner.detach_key)} detaches")
    with terminal.RawTerminal() as raw:
        talk = Conversation(
            attached, _say_raw, detach, raw=raw, steal=manner.steal, read_only=manner.read_only
        )
        return await talk.hold(view.show, before)


def farewell(left: Left, run: str, cursor: int, *, quiet: bool = False, goes_on: bool = True) -> int:
    """A last word to who leaves, and the exit code."""
    if left is Left.DETACHED and not quiet:
        fate = f"goes on ('dsup attach {run}' comes back)" if goes_on else "is stopped"
        out.note(f"detached after event {cursor}; the run {fate}")
    return exit_codes.TERMINATED if left is Left.TERMINATED else exit_codes.OK


def _say(words: str) -> None:
    with suppress(OSError, SupervisorError):
        out.note(Style(out.STDERR).paint("dim", f"[{words}]"))


def _say_raw(words: str) -> None:
    with suppress(OSError, SupervisorError):
        out.write_text(f"\r\n{Style(out.STDERR).paint('dim', f'[{words}]')}\r\n", out.STDERR)
