"""``runs/collected.log``: what is left of runs whose logs were collected, one line each, append-only.

The journal has the same facts.  This file is for the day on which the journal is lost: with their
logs gone nothing else would know that these request ids are spent.

A line is the CRC-32 of a JSON object in hex, a space, and the object.  Nothing that was appended is ever
cut: a line that a crash left half-written is ended by the next append, and skipped by readers.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress

from durable_supervisor.model.named_tuple import NamedTuple

from .files import fsync_dir, open_regular, write_all

NAME = "collected.log"
_MOST = 1 << 20  # bytes of a line; ours have about one KiB
_APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Document = dict[str, object]


class Mark(NamedTuple):
    """A line by its place and its checksum: up to here a journal knows this file."""

    start: int
    end: int
    crc: str

    def __str__(self) -> str:
        return f"{self.start}:{self.end}:{self.crc}"

    @classmethod
    def parse(cls, text: str | None) -> Mark | None:
        """None where there is none, or it is not one."""
        try:
            start, end, crc = (text or "").split(":")
            return cls(int(start), int(end), crc)
        except ValueError:
            return None


class Line(NamedTuple):
    """``document`` is None where the line is damaged, or was never written to its end."""

    mark: Mark
    document: Document | None


class CollectedLog:
    """The file of one state directory.  One writer at a time: the directory's owner."""

    def __init__(self, runs_dir: str) -> None:
        self.path = os.path.join(runs_dir, NAME)

    def append(self, documents: Iterable[Document]) -> Mark:
        """Add a line for each (at least one); on the disk when this returns: the last one's mark.

        Raises OSError, `NotRegularError`.  A full disk is given back what was written by then, or each
        further try would take what was freed for it; where that fails too, it is no harm.
        """
        fd, size = open_regular(self.path, _APPEND)
        try:
            os.fchmod(fd, 0o600)  # a umask can only have taken bits away
            torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
            lines = [_encode(document) for document in documents]
            text = (b"\n" if torn else b"") + b"".join(lines)
            _, number = write_all(fd, [text], size, len(text))
            if number:
                with suppress(OSError):
                    os.ftruncate(fd, size)
                raise OSError(number, os.strerror(number), self.path)
            os.fsync(fd)
        finally:
            os.close(fd)
        fsync_dir(os.path.dirname(self.path))  # whoever made the file may have been killed before this
        end = size + len(text)
        return Mark(end - len(lines[-1]), end, lines[-1][:8].decode())

    def is_at(self, mark: Mark | None) -> bool:
        """Does the file end with that line?  Without a mark: is it empty, or not there?"""
        try:
            fd, size = open_regular(self.path)
        except FileNotFoundError:
            return mark is None
        try:
            if mark is None:
                return size == 0
            return size == mark.end and _holds(fd, mark)
        finally:
            os.close(fd)

    def lines(self, after: Mark | None = None) -> Iterator[Line]:
        """Every line behind a mark; all of them where the file has no such line.

        Raises OSError, `NotRegularError`; a file that is not there has no lines.
        """
        try:
            fd, _ = open_regular(self.path)
        except FileNotFoundError:
            return
        with open(fd, "rb") as file:
            start = after.end if after is not None and _holds(fd, after) else 0
            file.seek(start)
            while text := file.readline(_MOST):
                yield _line(start, text)
                start += len(text)

    def has(self, mark: Mark | None) -> bool:
        """Does the file hold that line?  Then what comes before it is what the journal knows."""
        if mark is None:
            return True
        try:
            fd, _ = open_regular(self.path)
        except FileNotFoundError:
            return False
        try:
            return _holds(fd, mark)
        finally:
            os.close(fd)


def _holds(fd: int, mark: Mark) -> bool:
    line = _line(mark.start, os.pread(fd, max(0, min(mark.end - mark.start, _MOST)), mark.start))
    return line.document is not None and line.mark == mark


def _encode(document: Document) -> bytes:
    text = json.dumps(document, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii")
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _line(start: int, text: bytes) -> Line:
    crc, _, rest = text.partition(b" ")
    mark = Mark(start, start + len(text), crc.decode("ascii", "replace"))
    if not text.endswith(b"\n") or crc != b"%08x" % zlib.crc32(rest[:-1]):
        return Line(mark, None)
    try:
        document = json.loads(rest)
    except ValueError:
        return Line(mark, None)
    return Line(mark, document if isinstance(document, dict) else None)
