"""How much of a pipe is read at once."""

from __future__ import annotations

import fcntl
import os
import select
import time

from ..process.libc import give_memory_back, keep_memory
from .poller import Poller

NARROW = 64 * 1024  # what a pipe holds by itself (pipe(7))
WIDE = 256 * 1024
STEADY = 16  # full reads in a row
QUIET = 0.5  # seconds
_PIECES = 4  # of this size that the filters have at the same time, at most
_SET_SIZE: int | None = getattr(fcntl, "F_SETPIPE_SZ", None)  # Linux
_GET_SIZE: int = getattr(fcntl, "F_GETPIPE_SZ", 0)


def is_full(fd: int) -> bool:
    """Has the pipe, of which this is the end to read from, no slot left?  Then its writers wait, or may soon.

    Bytes do not tell: pieces of any size take a slot each where they are packets, or spliced (pipe(7)).  Poll
    tells at an end to write to, so one is had for a moment.  True also where none can be had.
    """
    try:
        end = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        writable = select.poll()
        writable.register(end, select.POLLOUT)
        return not writable.poll(0)
    finally:
        os.close(end)


class Width:
    """Narrow, and wide while a program writes as fast as it is read: that saves a third of the CPU a byte.

    Neither from the start nor for longer: what all pipes of a user may hold is bounded, and beyond it new
    ones are tiny (pipe(7), pipe-user-pages-soft).  Where the kernel refuses, it stays as it is.
    """

    __slots__ = ("_fd", "_full", "_lately", "_timer", "size")

    def __init__(self, fd: int) -> None:
        self.size = NARROW
        self._fd = fd
        self._timer = f"width {fd}"
        self._full = 0
        self._lately = False

    def note(self, got: int, poller: Poller) -> None:
        """So many bytes came when ``size`` were asked for."""
        self._lately = True
        self._full = self._full + 1 if got >= self.size else 0
        if self.size == NARROW and self._full == STEADY:
            self._full = 0
            self._widen(poller)
        elif self.size == WIDE and got < NARROW:
            self._narrow(poller)

    def close(self, poller: Poller) -> None:
        """Nothing more is read."""
        poller.cancel(self._timer)
        if self.size == WIDE:
            self.size = NARROW
            give_memory_back()

    def _widen(self, poller: Poller) -> None:
        if self._resize(NARROW, WIDE):
            self.size = WIDE
            # What is freed here is needed again at once, and new pages would cost more than their use.
            keep_memory(_PIECES * WIDE)
            self._look_later(poller)

    def _narrow(self, poller: Poller) -> None:
        if self._resize(WIDE, NARROW):
            self.close(poller)

    def _look_later(self, poller: Poller) -> None:
        poller.at(self._timer, time.monotonic() + QUIET, lambda: self._look(poller))

    def _look(self, poller: Poller) -> None:
        """The last read of a flood may be a large one, and then nothing comes for days."""
        if not self._lately:
            self._narrow(poller)
        self._lately = False
        if self.size == WIDE:
            self._look_later(poller)

    def _resize(self, before: int, size: int) -> bool:
        if _SET_SIZE is None:
            return False
        try:
            if fcntl.fcntl(self._fd, _GET_SIZE) == before:  # else the program has chosen, and keeps it
                fcntl.fcntl(self._fd, _SET_SIZE, size)
        except OSError:  # over the bound; it holds more than that by now; it is a terminal
            return False
        return True
