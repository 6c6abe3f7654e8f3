"""The output that a report shows: head and tail of it, as lines, in bounded memory and time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from .sgr import Painter, Span

MAX_LINES = 4000  # of head and tail each; a browser lays that out at once
MAX_CHARACTERS = 1 << 20  # of head and tail each
MAX_LINE = 4000  # characters; a longer line is shown as several
MAX_WAITING = 2 << 20  # bytes that may turn out to be the tail; only those are read for colours
NOTE = "note"


@dataclass(slots=True)
class Line:
    """A line of one stream, or a remark (`NOTE`), begun at ``seconds`` of the run's life.

    ``continued``: it does not begin where the program's line did.
    """

    stream: str
    seconds: float
    seq: int
    spans: list[Span] = field(default_factory=list)
    size: int = 0
    continued: bool = False
    in_head: bool = False


@dataclass(frozen=True, slots=True)
class _Chunk:
    stream: str
    seconds: float
    seq: int
    data: bytes


class Pane:
    """Lines in the order in which they were begun, so that a prompt stands before what answers it.

    Between ``head`` and ``tail`` lie ``left_out`` lines with about ``left_out_bytes``.  ``lines``
    counts all of each stream.  A colour that began in what was left out is not known in the tail.
    """

    def __init__(self) -> None:
        self.head: list[Line] = []
        self.tail: deque[Line] = deque()
        self.left_out = 0
        self.left_out_bytes = 0
        self.lines = {"stdout": 0, "stderr": 0}
        self._head_size = 0
        self._tail_size = 0
        self._waiting: deque[_Chunk] = deque()
        self._waiting_size = 0
        self._painters: dict[str, Painter] = {}
        self._open: dict[str, Line] = {}  # the unfinished line of each stream
        self._cut: set[str] = set()  # streams whose next line has lost its beginning

    def add(self, stream: str, seconds: float, seq: int, data: bytes) -> None:
        """Take in what a stream got."""
        chunk = _Chunk(stream, seconds, seq, data)
        if self._room_in_head():
            self._paint(chunk)
            return
        self._waiting.append(chunk)
        self._waiting_size += len(data)
        while self._waiting_size > MAX_WAITING and len(self._waiting) > 1:
            self._drop(self._waiting.popleft())

    def note(self, seconds: float, seq: int, words: str) -> None:
        """A remark between the lines, which end here."""
        self.add(NOTE, seconds, seq, words.encode("utf-8", "backslashreplace"))

    def finish(self) -> None:
        """No more will come."""
        while self._waiting:
            self._paint(self._waiting.popleft())
        for stream, painter in self._painters.items():
            last = self._open.get(stream)
            seconds, seq = (last.seconds, last.seq) if last else (0.0, 0)
            self._take(stream, seconds, seq, painter.finish())

    def _room_in_head(self) -> bool:
        return not self._waiting and len(self.head) < MAX_LINES and self._head_size < MAX_CHARACTERS

    def _paint(self, chunk: _Chunk) -> None:
        if chunk.stream == NOTE:
            self._open.clear()
            words = chunk.data.decode("utf-8")
            self._place(Line(NOTE, chunk.seconds, chunk.seq, [Span(words)], len(words)))
            return
        painter = self._painters.setdefault(chunk.stream, Painter())
        self._take(chunk.stream, chunk.seconds, chunk.seq, painter.feed(chunk.data))

    def _drop(self, chunk: _Chunk) -> None:
        """It will not be shown: count it, without reading it."""
        self._waiting_size -= len(chunk.data)
        if chunk.stream == NOTE:
            return
        newlines = chunk.data.count(b"\n")
        self.left_out += newlines
        self.left_out_bytes += len(chunk.data)
        # A line that was begun in the head was counted there.
        begun = self._open.pop(chunk.stream, None) is not None
        self.lines[chunk.stream] = self.lines.get(chunk.stream, 0) + newlines - begun
        self._painters.pop(chunk.stream, None)
        if chunk.data.endswith(b"\n"):
            self._cut.discard(chunk.stream)
        else:
            self._cut.add(chunk.stream)

    def _take(self, stream: str, seconds: float, seq: int, pieces: Iterable[Span | str]) -> None:
        for piece in pieces:
            if isinstance(piece, Span):
                self._text(stream, seconds, seq, piece)
            else:  # a newline
                self._line(stream, seconds, seq)
                self._open.pop(stream)

    def _text(self, stream: str, seconds: float, seq: int, piece: Span) -> None:
        rest = piece.text
        while rest:
            line = self._line(stream, seconds, seq)
            part, rest = rest[: MAX_LINE - line.size], rest[MAX_LINE - line.size :]
            line.spans.append(Span(part, piece.look, piece.mark))
            self._grow(line, len(part))
            if line.size >= MAX_LINE:
                self._open[stream] = self._place(Line(stream, seconds, seq, continued=True))

    def _line(self, stream: str, seconds: float, seq: int) -> Line:
        """The stream's unfinished line, or a new one."""
        if stream not in self._open:
            line = Line(stream, seconds, seq, continued=stream in self._cut)
            self._cut.discard(stream)
            self._open[stream] = self._place(line)
            self.lines[stream] = self.lines.get(stream, 0) + 1
        return self._open[stream]

    def _place(self, line: Line) -> Line:
        if not self.tail and self._room_in_head() and not self.left_out_bytes:
            line.in_head = True
            self.head.append(line)
            self._head_size += line.size
            return line
        self.tail.append(line)
        self._tail_size += line.size
        while len(self.tail) > MAX_LINES or (self._tail_size > MAX_CHARACTERS and len(self.tail) > 1):
            self._leave_out(self.tail.popleft())
        return line

    def _grow(self, line: Line, count: int) -> None:
        line.size += count
        if line.in_head:
            self._head_size += count
        else:
            self._tail_size += count

    def _leave_out(self, line: Line) -> None:
        self._tail_size -= line.size
        self.left_out += not line.continued
        self.left_out_bytes += line.size
        for stream, unfinished in list(self._open.items()):
            if unfinished is line:
                del self._open[stream]
