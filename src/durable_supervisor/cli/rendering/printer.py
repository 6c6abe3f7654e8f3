"""A run's events as they come: output to the right stream, facts as remarks on stderr."""

from __future__ import annotations

from typing import TYPE_CHECKING

from durable_supervisor.model.events import Kind

from ..output import describe, out
from ..output.escape import StreamEscaper
from ..output.style import Style

if TYPE_CHECKING:
    from durable_supervisor.model.events import Event

_DESCRIPTORS = {"stdout": out.STDOUT, "stderr": out.STDERR}


class Printer:
    """Prints events one after the other.

    ``escape``: which descriptors get control characters made visible.  ``merge``
    sends both streams to stdout.  ``facts`` adds a remark for every lifecycle
    event.  Dropped output is always remarked on.
    """

    def __init__(self, *, escape: frozenset[int], merge: bool = False, facts: bool = False) -> None:
        self._escape = escape
        self._merge = merge
        self.facts = facts
        self._escapers = {name: StreamEscaper() for name in _DESCRIPTORS}
        self._styles = {number: Style(number) for number in (out.STDOUT, out.STDERR)}
        self._in_line = False  # has a terminal been left in the middle of a line?

    async def show(self, event: Event) -> None:
        """Print one event.  Waits for a slow reader without holding up the event loop."""
        if event.kind == Kind.OUTPUT:
            await self._output(event.stream or "stdout", event.data)
            return
        if event.kind == Kind.OUTPUT_DROPPED or self.facts:
            await self.finish()
            await self._remark(event)

    async def finish(self) -> None:
        """Print what was held back at the end of a stream: half a character, a carriage return."""
        for stream, escaper in self._escapers.items():
            rest = escaper.finish()
            if rest:
                await self._text(stream, rest)

    async def end_line(self) -> None:
        """Put a terminal at the start of a line, so that a remark stands alone."""
        if self._in_line and out.is_terminal(out.STDERR):
            await out.write_patiently(b"\n", out.STDERR)
        self._in_line = False

    async def _output(self, stream: str, data: bytes) -> None:
        if self._descriptor(stream) in self._escape:
            await self._text(stream, self._escapers[stream].feed(data))
        elif data:
            await out.write_patiently(data, self._descriptor(stream))
            self._left(stream, data.endswith(b"\n"))

    async def _text(self, stream: str, text: str) -> None:
        if not text:
            return
        descriptor = self._descriptor(stream)
        colour = "red" if stream == "stderr" else ""
        await out.write_patiently(out.encode(self._styles[descriptor].paint(colour, text)), descriptor)
        self._left(stream, text.endswith("\n"))

    async def _remark(self, event: Event) -> None:
        await self.end_line()
        words = f"{event.kind} {describe.event_text(event.kind, event.detail)}".rstrip()
        text = f"[+{event.elapsed_ns / 1e9:.3f}s {words}]"
        await out.write_patiently(out.encode(self._styles[out.STDERR].paint("dim", text) + "\n"), out.STDERR)

    def _descriptor(self, stream: str) -> int:
        return out.STDOUT if self._merge else _DESCRIPTORS.get(stream, out.STDOUT)

    def _left(self, stream: str, ended: bool) -> None:
        if out.is_terminal(self._descriptor(stream)):
            self._in_line = not ended


def terminals(*, raw: bool) -> frozenset[int]:
    """The descriptors to escape for a live view: terminals, unless bytes were asked for.

    A file or a pipe gets the program's own bytes, so that ``dsup run -- x > file`` is exact.
    """
    if raw:
        return frozenset()
    return frozenset(number for number in (out.STDOUT, out.STDERR) if out.is_terminal(number))
