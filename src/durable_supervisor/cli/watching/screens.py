"""What a replay is shown on: lines of JSON, text with remarks, or a terminal that plays a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from durable_supervisor.model.events import Kind

from ..output import out
from ..output.style import Style
from ..rendering.printer import Printer, terminals

if TYPE_CHECKING:
    from durable_supervisor.model.events import Event

_EVERYTHING = 1 << 62
_CLEAN = b"\x1b[!p\x1b[H\x1b[2J\x1b[3J"  # soft reset (DECSTR), home, and all of the screen


class Screen(Protocol):
    """``missed``: the event lies before the place that was gone to."""

    async def show(self, event: Event, *, missed: bool) -> None: ...

    async def rewind(self) -> None:
        """Somebody went back; what follows was shown before."""

    async def say(self, words: str) -> None:
        """A remark for the person who pressed a key."""

    async def leave(self) -> None:
        """Nothing more comes."""


class JsonScreen:
    """One line an event."""

    async def show(self, event: Event, *, missed: bool) -> None:
        if not missed:
            await out.write_patiently(event.to_json() + b"\n")

    async def rewind(self) -> None:
        return

    async def say(self, words: str) -> None:
        return

    async def leave(self) -> None:
        return


class TextScreen:
    """Output as text, facts and remarks on stderr.  What was jumped over is left out."""

    def __init__(self, printer: Printer) -> None:
        self._printer = printer

    async def show(self, event: Event, *, missed: bool) -> None:
        if not missed:
            await self._printer.show(event)

    async def rewind(self) -> None:
        await self._printer.finish()

    async def say(self, words: str) -> None:
        await self._printer.finish()
        await self._printer.end_line()
        out.note(Style(out.STDERR).paint("dim", f"[{words}]"))

    async def leave(self) -> None:
        await self._printer.finish()
        await self._printer.end_line()


class TerminalScreen:
    """The program's own bytes.  A picture needs all that came before it, so nothing is left out."""

    def __init__(self) -> None:
        from ..terminal.viewing import RawView

        self._view = RawView(_EVERYTHING)  # all is past: its questions to the terminal are left out

    async def show(self, event: Event, *, missed: bool) -> None:
        if event.kind in (Kind.OUTPUT, Kind.OUTPUT_DROPPED):
            await self._view.show(event)

    async def rewind(self) -> None:
        from ..terminal.viewing import RawView

        self._view = RawView(_EVERYTHING)
        await out.write_patiently(_CLEAN)

    async def say(self, words: str) -> None:
        return  # it would spoil the picture

    async def leave(self) -> None:
        self._view.leave()


def screen(*, json: bool, pty: bool, raw: bool, quiet: bool) -> Screen:
    """The one that fits; ``pty``: the run's terminal is played on this one."""
    if json:
        return JsonScreen()
    if pty:
        return TerminalScreen()
    return TextScreen(Printer(escape=terminals(raw=raw), facts=not quiet))
