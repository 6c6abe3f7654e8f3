"""What is not on the disk yet, and a sync that may run beside appending."""

from __future__ import annotations

import os

from .files import fsync_dir
from .paths import SegmentKey

MAX_FILES = 32
MAX_BYTES = 16 << 20


class Waiting:
    """A sealed file that no sync has covered yet; ``owned``: its descriptor is closed afterwards."""

    __slots__ = ("fd", "key", "owned", "size")

    def __init__(self, key: SegmentKey, fd: int, size: int, owned: bool) -> None:
        self.key = key
        self.fd = fd
        self.size = size
        self.owned = owned

    def close(self) -> None:
        if self.owned:
            os.close(self.fd)


class SyncJob:
    """Call it in any thread: it makes sealed files, the open one up to ``end`` and their names durable.

    It works on descriptors of its own (os.fdatasync releases the GIL) and shares no
    state with the writer.  Raises OSError.  Give it to `LogWriter.end_sync` afterwards.
    """

    __slots__ = ("_fds", "dirs", "end", "key", "sealed")

    def __init__(self, fd: int, key: SegmentKey, end: int, sealed: list[Waiting], dirs: set[str]) -> None:
        self._fds: list[int] = []
        self.key = key
        self.end = end
        self.sealed = [file.key for file in sealed]
        self.dirs = dirs
        try:
            for each in (*(file.fd for file in sealed), fd):
                self._fds.append(os.dup(each))
        except OSError:
            self.close()
            raise

    def __call__(self) -> None:
        for fd in self._fds:
            os.fdatasync(fd)
        for directory in sorted(self.dirs, reverse=True):  # the files' own directory before its parent
            fsync_dir(directory)

    def close(self) -> None:
        for fd in self._fds:
            os.close(fd)
        self._fds = []


class Unsynced:
    """The sealed files, and the directories, that wait for a sync."""

    __slots__ = ("dirs", "files")

    def __init__(self, dirs: set[str]) -> None:
        self.dirs = dirs
        self.files: list[Waiting] = []

    @property
    def many(self) -> bool:
        """Is it time to sync some of them, and be it by blocking?"""
        return len(self.files) > MAX_FILES or sum(file.size for file in self.files) > MAX_BYTES

    def forget(self, keys: list[SegmentKey]) -> None:
        """These are synced, or gone, or their sync failed, and a second one would lie."""
        kept = []
        for file in self.files:
            if file.key in keys:
                file.close()
            else:
                kept.append(file)
        self.files = kept

    def sync_oldest(self) -> int:
        """Sync one file, blocking; an errno when that failed."""
        file = self.files.pop(0)
        try:
            os.fdatasync(file.fd)
        except OSError as problem:
            return problem.errno or 1
        finally:
            file.close()
        return 0

    def sync_dirs(self) -> None:
        """Raises OSError; what was not synced goes on waiting."""
        for directory in sorted(self.dirs, reverse=True):
            fsync_dir(directory)
            self.dirs.discard(directory)

    def close(self) -> None:
        self.forget([file.key for file in self.files])
