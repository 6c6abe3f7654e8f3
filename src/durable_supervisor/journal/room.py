"""Room at the end of the -wal file, made between commits.

A commit that lengthens the file waits until the file system has written down that it is longer: measured,
half as long again as one that finds room.
"""

from __future__ import annotations

import os
from contextlib import suppress

CHUNK = 512 * 1024  # bytes, made in the time of three commits
ENOUGH = 9 * CHUNK  # for all that is written between two checkpoints: then the file begins anew


class WalRoom:
    """Of one journal's -wal file, for its only writer, in whose thread `make` is called."""

    def __init__(self, journal: str) -> None:
        self._path = journal + "-wal"
        self._known = 0  # how long the file was when last made longer here, or begun anew

    def is_short(self) -> bool:
        """May a commit to come have to lengthen the file?  It may be so where one had to since.

        Asked on the loop too: an open file is known in memory.
        """
        length = self._length()
        return length < ENOUGH or length > self._known

    def make(self) -> None:
        """Add zeros, in which SQLite sees the end of what is valid, as in anything else behind it.

        Only ever behind the end, whoever writes there meanwhile; and no lock of SQLite's is on this file, so
        it may be opened beside it.  Where it cannot be done, commits are slower.
        """
        if not self.is_short():  # it was asked for more than once
            return
        self._known = self._length() + CHUNK
        with suppress(OSError):
            fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                os.write(fd, bytes(CHUNK))
                os.fdatasync(fd)
            finally:
                os.close(fd)

    def begins_anew(self) -> None:
        """It was written back: what it has is room."""
        self._known = self._length()

    def _length(self) -> int:
        try:
            return os.stat(self._path).st_size
        except OSError:
            return 0
