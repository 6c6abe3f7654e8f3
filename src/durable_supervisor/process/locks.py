"""Open-file-description locks: held by the description, not by a process (fcntl(2)).

The lock of a run log is handed over with its descriptor and dies with the last
copy of it, so "free" proves that no worker exists.  `probe_lock` asks with
F_OFD_GETLK, which acquires nothing: looking can never disturb a hand-over.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
from enum import StrEnum

from .shortage import is_shortage

# struct flock of 64-bit Linux: type, whence, start, len, pid (padded to its alignment).
_FLOCK = struct.Struct("@hhqqi0q")
_LAST_BYTE = 1 << 62  # of a range that no file reaches


class LockState(StrEnum):
    HELD = "held"
    FREE = "free"
    MISSING = "missing"
    UNREADABLE = "unreadable"  # not a regular file, no permission, or no answer


def try_lock(fd: int) -> bool:
    """Take the write lock of the whole file without waiting.  False: somebody holds it."""
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def keep_held(old: int, new: int) -> None:
    """Let ``new``, another description of the same file, hold a byte of the lock that ``old`` holds.

    So ``old`` can be let go of, to see whether anybody else has a copy of it (then
    `try_lock` of ``new`` fails), and at no moment does the file look free.  Raises OSError.
    """
    for fd, kind in ((old, fcntl.F_UNLCK), (new, fcntl.F_WRLCK)):
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, _LAST_BYTE, 1, 0))


def is_locked(fd: int) -> bool:
    """Does another open file description hold a lock?  Acquires nothing."""
    answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)


def probe_lock(path: str) -> LockState:
    """Is the lock of this run log held?  Never follows a symlink, never blocks on a FIFO.

    Raises OSError when we ourselves are short of something: that says nothing about the lock.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return LockState.MISSING
    except OSError as error:
        if is_shortage(error):
            raise
        return LockState.UNREADABLE
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return LockState.UNREADABLE
        return LockState.HELD if is_locked(fd) else LockState.FREE
    except OSError:
        return LockState.UNREADABLE
    finally:
        os.close(fd)
