"""How much of a pipe is read at once."""

from __future__ import annotations

import fcntl

from ..process.libc import give_memory_back, keep_memory

NARROW = 64 * 1024  # what a pipe holds by itself (pipe(7))
WIDE = 256 * 1024
STEADY = 16  # full reads in a row
_PIECES = 4  # of this size that the filters have at the same time, at most
_SET_SIZE: int | None = getattr(fcntl, "F_SETPIPE_SZ", None)  # Linux


class Width:
    """Narrow, and wide while a program writes as fast as it is read: that saves a third of the CPU a byte.

    Neither from the start nor for longer: what all pipes of a user may hold is bounded, and beyond it new
    ones are tiny (pipe(7), pipe-user-pages-soft).  Where the kernel refuses, it stays as it is.
    """

    __slots__ = ("_fd", "_full", "size")

    def __init__(self, fd: int) -> None:
        self.size = NARROW
        self._fd = fd
        self._full = 0

    def note(self, got: int) -> None:
        """So many bytes came when ``size`` were asked for."""
        self._full = self._full + 1 if got >= self.size else 0
        if self.size == NARROW and self._full == STEADY:
            self._full = 0
            if self._resize(WIDE):
                # What is freed here is needed again at once, and new pages would cost more than their use.
                keep_memory(_PIECES * WIDE)
        elif self.size == WIDE and got < NARROW and self._resize(NARROW):
            give_memory_back()

    def _resize(self, size: int) -> bool:
        if _SET_SIZE is None:
            return False
        try:
            fcntl.fcntl(self._fd, _SET_SIZE, size)
        except OSError:  # over the bound; it holds more than that by now; it is a terminal
            return False
        self.size = size
        return True
