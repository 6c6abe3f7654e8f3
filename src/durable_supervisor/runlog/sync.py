"""A sync that may run beside appending."""

from __future__ import annotations

import os

from .files import fsync_dir
from .paths import SegmentKey


class SyncJob:
    """Call it in any thread: it makes a segment durable up to ``end``, and the names of its files.

    It works on a descriptor of its own (os.fdatasync releases the GIL) and shares no
    state with the writer.  Raises OSError.  Give it to `LogWriter.end_sync` afterwards.
    """

    __slots__ = ("dirs", "end", "fd", "key")

    def __init__(self, fd: int, key: SegmentKey, end: int, dirs: set[str]) -> None:
        self.fd = fd
        self.key = key
        self.end = end
        self.dirs = dirs

    def __call__(self) -> None:
        os.fdatasync(self.fd)
        for directory in sorted(self.dirs, reverse=True):  # the file's own directory before its parent
            fsync_dir(directory)

    def close(self) -> None:
        os.close(self.fd)
