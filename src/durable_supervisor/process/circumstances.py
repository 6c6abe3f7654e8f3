"""What the kernel holds this process to, and any other of its user can change at any time.

A program may do so to its parent by mistake (``renice -p $PPID``), and whatever is started
by that parent afterwards inherits it.
"""

from __future__ import annotations

import ctypes
import os
import resource

_RLIMITS = range(16)  # RLIM_NLIMITS
_IOPRIO_GET = {"x86_64": 252, "aarch64": 31}.get(os.uname().machine)
_IOPRIO_WHO_PROCESS = 1
_FILES = ("cgroup", "oom_score_adj", "timerslack_ns", "coredump_filter")  # of /proc/self, see proc(5)
_libc = ctypes.CDLL(None)

Circumstances = tuple[object, ...]


def circumstances() -> Circumstances:
    """All of them, to be compared with what they were.  Raises OSError."""
    return (
        os.getpriority(os.PRIO_PROCESS, 0),
        os.sched_getscheduler(0),
        os.sched_getaffinity(0),
        _io_priority(),
        *map(resource.getrlimit, _RLIMITS),
        *map(_read, _FILES),
    )


def _io_priority() -> int:
    """Where its number is not known, always the same."""
    return 0 if _IOPRIO_GET is None else int(_libc.syscall(_IOPRIO_GET, _IOPRIO_WHO_PROCESS, 0))


def _read(name: str) -> bytes:
    try:
        fd = os.open(f"/proc/self/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # a kernel that is built without
        return b""
    try:
        return os.read(fd, 4096)
    finally:
        os.close(fd)
