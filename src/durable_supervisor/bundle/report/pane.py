"""The output that a report shows: head and tail of it, as lines, in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from .sgr import Painter, Span

MAX_LINES = 4000  # of head and tail each; a browser lays that out at once
MAX_CHARACTERS = 1 << 20  # of head and tail each
MAX_LINE = 4000  # characters; a longer line is shown as several


@dataclass(slots=True)
class Line:
    """A line of one stream, or a remark (``stream`` is then ``note``), at ``seconds`` of the run's life."""

    stream: str
    seconds: float
    seq: int
    spans: list[Span] = field(default_factory=list)
    size: int = 0
    continued: bool = False
    in_head: bool = False


class Pane:
    """Lines in the order in which they were begun, so that a prompt stands before what answers it.

    ``left_out`` lines with ``left_out_characters`` lie between ``head`` and ``tail``.
    """

    def __init__(self) -> None:
        self.head: list[Line] = []
        self.tail: deque[Line] = deque()
        self.left_out = 0
        self.left_out_characters = 0
        self.lines = {"stdout": 0, "stderr": 0}
        self._head_size = 0
        self._tail_size = 0
        self._painters: dict[str, Painter] = {}
        self._open: dict[str, Line] = {}

    def add(self, stream: str, seconds: float, seq: int, data: bytes) -> None:
        """Take in what a stream got."""
        painter = self._painters.setdefault(stream, Painter())
        self._take(stream, seconds, seq, painter.feed(data))

    def note(self, seconds: float, seq: int, words: str) -> None:
        """A remark between the lines, which end here."""
        self._open.clear()
        self._place(Line("note", seconds, seq, [Span(words)], len(words)))

    def finish(self) -> None:
        """No more will come."""
        for stream, painter in self._painters.items():
            last = self._open.get(stream)
            self._take(stream, last.seconds if last else 0.0, last.seq if last else 0, painter.finish())

    def _take(self, stream: str, seconds: float, seq: int, pieces: Iterator[Span | str]) -> None:
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
            self._open[stream] = self._place(Line(stream, seconds, seq))
            self.lines[stream] = self.lines.get(stream, 0) + 1
        return self._open[stream]

    def _place(self, line: Line) -> Line:
        if not self.tail and len(self.head) < MAX_LINES and self._head_size < MAX_CHARACTERS:
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
        self.left_out_characters += line.size
        for stream, unfinished in list(self._open.items()):
            if unfinished is line:
                del self._open[stream]
