"""A stream of output as lines, however long one of them is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..model.events import Event, Kind

LINE_BYTES: Final = 64 * 1024  # what a longer line is handed out in


@dataclass(frozen=True, slots=True)
class Line:
    """``data`` has no newline.  ``ended``: a newline came after it; else it is a piece of a line of more
    than 64 KiB, with the rest in the next of the same stream, or the last of its stream.
    """

    stream: str
    data: bytes
    ended: bool

    @property
    def text(self) -> str:
        """As UTF-8, without the carriage return that a terminal puts before each newline."""
        data = self.data.removesuffix(b"\r") if self.ended else self.data
        return data.decode("utf-8", "replace")


class Lines:
    """Cuts the output of both streams into lines.  Holds no more than one piece of each."""

    def __init__(self) -> None:
        self._held: dict[str, bytes] = {}

    def of(self, event: Event) -> list[Line]:
        """What is complete with this event."""
        return self.feed(event.stream or "stdout", event.data) if event.kind == Kind.OUTPUT else []

    def feed(self, stream: str, data: bytes) -> list[Line]:
        """What is complete with these bytes."""
        *ended, rest = (self._held.pop(stream, b"") + data).split(b"\n")
        found: list[Line] = []
        for whole in ended:
            last = _cut(stream, whole, found)
            found.append(Line(stream, last, ended=True))
        rest = _cut(stream, rest, found)
        if rest:
            self._held[stream] = rest
        return found

    def finish(self) -> list[Line]:
        """What came without a newline at the end."""
        held, self._held = self._held, {}
        return [Line(stream, data, ended=False) for stream, data in held.items()]


def _cut(stream: str, data: bytes, found: list[Line]) -> bytes:
    """Add the full pieces of a long line; answers with what is left of it."""
    while len(data) > LINE_BYTES:
        cut = _boundary(data, LINE_BYTES)
        found.append(Line(stream, data[:cut], ended=False))
        data = data[cut:]
    return data


def _boundary(data: bytes, most: int) -> int:
    """Where to cut, so that no UTF-8 character is torn: these have up to three continuation bytes."""
    for cut in range(most, most - 4, -1):
        if data[cut] & 0xC0 != 0x80:
            return cut
    return most
