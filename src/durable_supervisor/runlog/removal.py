"""How much room a run's files take, and taking them away.

The newest attempt's first segment goes first.  So a reader that still finds it after a page knows
that the page was read from a whole log; and what a crash leaves behind has no name that anybody
would take for a run.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from ..process.failpoints import failpoint
from .files import fsync_dir
from .paths import HALF_MADE, LOG_SUFFIX, RunPaths

_BLOCK = 512  # bytes, whatever the file system's own blocks are (stat(2))


def disk_bytes(paths: RunPaths, attempts: int) -> int:
    """The room that the files of a run take on the disk."""
    blocks = sum(_blocks(paths.log(attempt)) for attempt in range(1, attempts + 1))
    for attempt in range(1, attempts + 1):
        with _folder(paths.segments_dir(attempt)) as (fd, names):
            blocks += sum(_blocks(name, fd) for name in names)
    return blocks * _BLOCK


def remove_run(paths: RunPaths, attempts: int) -> None:
    """Take away every file of a run.  Idempotent.  Raises OSError; then call it again some time."""
    for attempt in range(attempts, 0, -1):
        _unlink(paths.log(attempt))
        failpoint("gc.unlinking")
        with _folder(paths.segments_dir(attempt)) as (fd, names):
            for name in names:
                _unlink(name, fd)
        _remove_folder(paths.segments_dir(attempt))
    _unlink(paths.socket)


def settle_shard(paths: RunPaths, *, keep: bool) -> None:
    """Make it durable that files of this directory are gone; with ``keep=False`` it goes too, if it is empty.

    Else a power loss would bring back files that nobody looks for any more.  ``keep`` the one that
    new runs come into.
    """
    try:
        fsync_dir(paths.dir)
    except FileNotFoundError:
        return
    if not keep:
        _remove_folder(paths.dir)


@contextmanager
def _folder(path: str) -> Iterator[tuple[int, list[str]]]:
    """A directory of segments and the names of those in it; none where there is no such directory.

    By descriptor: a link in its place is not followed, however late it was put there.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise
        yield -1, []
        return
    try:
        yield fd, [name for name in os.listdir(fd) if name.endswith((LOG_SUFFIX, HALF_MADE))]
    finally:
        os.close(fd)


def _blocks(name: str, folder: int | None = None) -> int:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_blocks
    except FileNotFoundError:
        return 0


def _unlink(name: str, folder: int | None = None) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass


def _remove_folder(path: str) -> None:
    try:
        os.rmdir(path)
    except OSError:  # not there, or somebody keeps something in it
        pass
