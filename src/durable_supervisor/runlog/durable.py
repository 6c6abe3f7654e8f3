"""A reader's part in durability: what it is about to tell must still be so after a power loss.

The writer leaves a sync mark behind an attempt's last word once that is on the disk.  Where the mark is
missing, the writer is still at it, or was killed between the two; then a reader brings the log to the
disk itself.  fdatasync(2) takes any descriptor: that needs neither the lock nor a right to write.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from durable_supervisor.process.locks import LockState, probe_lock
from durable_supervisor.process.shortage import is_shortage

from .files import NotRegularError, list_segments, open_regular
from .paths import RunPaths


def settle_last_word(paths: RunPaths, attempt: int) -> bool:
    """Bring a last word without a mark to the disk.  False: its writer is still at it, or it cannot be done.

    A live writer is waited for: should its own sync fail, it writes the word once more, elsewhere, while
    the kernel would tell us that all is well (it tells each error once).
    """
    return probe_lock(paths.log(attempt)) is not LockState.HELD and make_durable(paths, attempt)


def make_durable(paths: RunPaths, attempt: int) -> bool:
    """Sync the segments of an attempt's log, then their names.  False where the system could not.

    Raises OSError when we ourselves are short of something.
    """
    folder = paths.segments_dir(attempt)
    try:
        for key in list_segments(paths, attempt):
            _sync(open_regular(paths.segment_file(attempt, key))[0], os.fdatasync)
        for directory in (folder, paths.dir) if os.path.isdir(folder) else (paths.dir,):
            _sync(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), os.fsync)
    except NotRegularError:
        return False
    except OSError as problem:
        if is_shortage(problem):
            raise
        return False
    return True


def _sync(fd: int, sync: Callable[[int], None]) -> None:
    """Closes ``fd``."""
    try:
        sync(fd)
    except OSError as problem:
        # A file system that is never written to (squashfs, say) knows no sync, and has nothing to sync.
        # EROFS is another matter: one that was written to until its disk failed says that.
        if problem.errno != errno.EINVAL or not os.fstatvfs(fd).f_flag & os.ST_RDONLY:
            raise
    finally:
        os.close(fd)
