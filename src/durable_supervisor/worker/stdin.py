"""The program's stdin: bytes given at the start, or writes that come later."""

from __future__ import annotations

import os
from collections.abc import Callable

from .poller import WRITE, Poller

MAX_QUEUED = 16 * 1024 * 1024

# result ("written" or "closed", of a terminal's end-of-file "eof_sent"), bytes that were taken
Done = Callable[[str, int], None]


class StdinFeed:
    """Writes without ever blocking; each piece is answered once it is in the pipe, or never will be.

    A program that ignores or closes its stdin is no failure: what is left is
    answered with ``closed``.
    """

    def __init__(self, fd: int, poller: Poller) -> None:
        self.written = 0
        self._fd = fd
        self._poller = poller
        self._queue: list[tuple[memoryview, int, Done]] = []
        self._queued = 0
        self._closing = False
        self._open = True
        os.set_blocking(fd, False)

    @property
    def accepts(self) -> bool:
        return self._open and not self._closing

    def room_for(self, size: int) -> bool:
        return self._queued + size <= MAX_QUEUED

    def write(self, data: bytes, done: Done) -> None:
        if not self.accepts:
            done("closed", 0)
            return
        self._queue.append((memoryview(data), 0, done))
        self._queued += len(data)
        self._pump()

    def end(self, done: Done) -> None:
        """End-of-file for the program, after everything queued; ``closed``, nothing more is taken."""
        self._closing = True
        self._pump()
        done("closed", 0)

    def resize(self, columns: int, rows: int) -> bool:
        """A pipe has no size."""
        return False

    def abandon(self) -> None:
        """Nobody will read any more: answer all that waits."""
        self._shut()

    def _pump(self) -> None:
        while self._open and self._queue:
            view, sent, done = self._queue[0]
            try:
                count = os.write(self._fd, view[sent:]) if len(view) > sent else 0
            except BlockingIOError:
                self._poller.watch(self._fd, WRITE, lambda _: self._pump())
                return
            except OSError:  # EPIPE, of a terminal EIO: the reading end is gone
                self._shut()
                return
            sent += count
            self.written += count
            self._queued -= count
            if sent < len(view):
                self._queue[0] = (view, sent, done)
                continue
            del self._queue[0]
            done("written", len(view))
        if not self._open:
            return  # its number may be another descriptor's by now
        self._poller.forget(self._fd)
        if self._closing:
            self._shut()

    def _shut(self) -> None:
        if not self._open:
            return
        self._open = False
        self._poller.forget(self._fd)
        self._close()
        queue, self._queue = self._queue, []
        for _, sent, done in queue:
            done("closed", sent)

    def _close(self) -> None:
        os.close(self._fd)
