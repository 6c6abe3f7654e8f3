"""Server-sent events (WHATWG HTML, 9.2): bytes in, in pieces of any size, messages out."""

from __future__ import annotations

from dataclasses import dataclass

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Message:
    """``id`` is the last one that came so far, '' before the first."""

    kind: str
    data: str
    id: str


class Parser:
    """Comments (heartbeats) and unknown fields are passed over, as the standard says."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []  # a line that has begun
        self._begun = False
        self._after_cr = False
        self._id = ""
        self._kind = ""
        self._data: list[str] = []

    def feed(self, piece: bytes) -> list[Message]:
        """The messages that ``piece`` completes."""
        if not piece:
            return []
        if self._after_cr:
            piece = piece.removeprefix(b"\n")  # the other half of a line's end
        self._after_cr = piece.endswith(b"\r")
        self._rest.append(piece)
        if b"\n" not in piece and b"\r" not in piece:
            return []  # joined once, when it is whole: an event may have a megabyte in its line
        lines = b"".join(self._rest).splitlines(keepends=True)
        self._rest = [] if lines[-1].endswith((b"\r", b"\n")) else [lines.pop()]
        found = [self._take(line.rstrip(b"\r\n")) for line in lines]
        return [message for message in found if message is not None]

    def _take(self, line: bytes) -> Message | None:
        if not self._begun:
            self._begun, line = True, line.removeprefix(_BOM)
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")  # a comment has no name
        text = value.removeprefix(b" ").decode("utf-8", "replace")
        if name == b"data":
            self._data.append(text)
        elif name == b"event":
            self._kind = text
        elif name == b"id" and "\0" not in text:
            self._id = text
        return None

    def _dispatch(self) -> Message | None:
        message = Message(self._kind or "message", "\n".join(self._data), self._id) if self._data else None
        self._kind, self._data = "", []
        return message
