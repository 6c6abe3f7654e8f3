"""The log of the next run, and its shard, made ahead while nobody waits for them: see `runlog.ready`."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from ...process import forks
from ...process.failpoints import failpoint
from ...process.locks import try_lock
from ...runlog.create import create_log, make_shard
from ...runlog.format import SegmentHeader
from ...runlog.paths import RunPaths, shard_of
from ...runlog.ready import make_ready, use_ready

_RUNS_AHEAD = 16

MakeLog = Callable[[RunPaths, SegmentHeader], int]


def create_locked(paths: RunPaths, header: SegmentHeader) -> int:
    """`create_log`, and its lock.  A forked copy of this process does not keep the descriptor."""
    fd = forks.opened(lambda: create_log(paths, header))
    failpoint("start.log_unlocked")
    try_lock(fd)  # nobody else can have it: the file is new
    return fd


class NextShard:
    """The directory that the next runs' logs are in.  To make it takes a sync: see `make_shard`."""

    def __init__(self, runs_dir: str) -> None:
        self._runs_dir = runs_dir
        self._made = ""

    def make(self, newest: int) -> None:
        """Some runs before it is needed, since not every start leaves time for it.  Raises OSError."""
        shard = shard_of(newest + _RUNS_AHEAD)
        path = f"{self._runs_dir}/{shard}"
        if shard != self._made and not os.path.lexists(path):
            make_shard(self._runs_dir, path)
        self._made = shard


class NextLog:
    """One at most.  Any thread may make it, use it and close it."""

    def __init__(self, runs_dir: str) -> None:
        self._runs_dir = runs_dir
        self._shards = NextShard(runs_dir)
        self._ready: deque[int] = deque()  # its descriptor: whoever takes it out has it
        self._closed = False

    @property
    def is_there(self) -> bool:
        return bool(self._ready)

    def make(self, newest: int) -> None:
        """By one thread at a time.  ``newest``: the serial of the newest run.

        Where it cannot be made, the next start makes its log by itself, and says why that cannot be.
        """
        if self._closed or self._ready:
            return
        with suppress(OSError):
            self._keep(self._make())
            self._shards.make(newest)

    def _make(self) -> int:
        fd = forks.opened(lambda: make_ready(self._runs_dir))
        try:
            try_lock(fd)
        except OSError:
            forks.close(fd)
            raise
        return fd

    def create(self, paths: RunPaths, header: SegmentHeader) -> int:
        """As `create_locked`, and raises as that does."""
        fd = self._take() if header.attempt == 1 else -1
        if fd < 0:
            return create_locked(paths, header)
        try:
            _check_descriptors(fd)
        except OSError:
            self._keep(fd)  # closed, it would be the one descriptor that a second try gets so far with
            raise
        used = False
        try:
            used = use_ready(fd, paths, header)
        finally:
            if not used:
                forks.close(fd)
        return fd if used else create_locked(paths, header)

    def close(self) -> None:
        """Idempotent, and waits for no disk: whoever is making one just now lets go of it."""
        self._closed = True
        if (fd := self._take()) >= 0:
            forks.close(fd)

    def _keep(self, fd: int) -> None:
        self._ready.append(fd)
        if self._closed:  # by another thread, which may have looked too early to find it
            self.close()

    def _take(self) -> int:
        """-1: there is none."""
        try:
            return self._ready.pop()
        except IndexError:
            return -1


def _check_descriptors(fd: int) -> None:
    """Raises OSError where no file could be made now: what a start needs next could not be had either."""
    with forks.no_fork:
        os.close(os.dup(fd))
