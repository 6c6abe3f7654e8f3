"""The few kernel calls that the standard library does not offer."""

from __future__ import annotations

import ctypes
import os
import struct

_libc = ctypes.CDLL(None, use_errno=True)
_prctl = _libc.prctl  # looked up here, not in every worker that is forked

PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36  # prctl(2)
CLOCK_BOOTTIME = 7
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # mallopt(3)
_USUAL_THRESHOLD = 128 * 1024
_TFD_NONBLOCK, _TFD_CLOEXEC = 0o4000, 0o2000000
_ITIMERSPEC = struct.Struct("@qqqq")


def set_child_subreaper() -> None:
    """Orphaned descendants become our children.  Raises OSError where the kernel cannot."""
    if _prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def set_process_name(name: str) -> None:
    """What ps shows as the command name (15 bytes); purely for people."""
    _prctl(PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def boottime_timer() -> int:
    """A descriptor for `arm_timer`, on CLOCK_BOOTTIME (timerfd_create(2)).

    Boot time runs on while the machine sleeps, and waiting on a descriptor
    needs no wake-ups in between.  Raises OSError.
    """
    fd = int(_libc.timerfd_create(CLOCK_BOOTTIME, _TFD_NONBLOCK | _TFD_CLOEXEC))
    if fd < 0:
        raise OSError(ctypes.get_errno(), "timerfd_create")
    return fd


def arm_timer(fd: int, seconds: float) -> None:
    """From now on it turns readable once, after ``seconds``.  Raises OSError."""
    whole, part = divmod(int(seconds * 1e9), 1_000_000_000)
    spec = _ITIMERSPEC.pack(0, 0, whole, max(part, 0 if whole else 1))
    if _libc.timerfd_settime(fd, 0, spec, None) != 0:
        raise OSError(ctypes.get_errno(), "timerfd_settime")


def sync_file_system(fd: int) -> bool:
    """All that was written to the file system of ``fd`` is on the disk then (syncfs(2)).

    False where there is no such call: sync files one by one.  Raises OSError.
    """
    syncfs = getattr(_libc, "syncfs", None)
    if syncfs is None:
        return False
    if syncfs(fd) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return True


def keep_memory(size: int) -> None:
    """What is freed stays for the next use, up to so many bytes, which pieces below that size then share.

    Otherwise each piece of 128 KiB or more is new memory, zeroed page by page as it is filled.
    """
    _set_thresholds(size)


def give_memory_back() -> None:
    """The end of `keep_memory`: nothing that is free stays."""
    _set_thresholds(_USUAL_THRESHOLD)
    trim = getattr(_libc, "malloc_trim", None)
    if trim is not None:
        trim(0)


def _set_thresholds(size: int) -> None:
    mallopt = getattr(_libc, "mallopt", None)  # glibc
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, size)
        mallopt(_M_MMAP_THRESHOLD, size)
