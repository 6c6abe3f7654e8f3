"""What the kernel holds this process to, and any other of its user can change at any time.

A program may do so to its parent by mistake (``renice -p $PPID``), and whatever is started
by that parent afterwards inherits it.
"""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Callable
from functools import partial

_RLIMITS = range(16)  # RLIM_NLIMITS
_IOPRIO_GET = {"x86_64": 252, "aarch64": 31}.get(os.uname().machine)
_IOPRIO_WHO_PROCESS = 1
_FILES = ("cgroup", "oom_score_adj", "timerslack_ns", "coredump_filter")  # of /proc/self, see proc(5)
_libc = ctypes.CDLL(None)


def circumstances() -> tuple[object, ...]:
    """All of them, to be compared with what they were.

    Where one is not to be had, the error stands for it: a filter's stays the same, a shortage's does not.
    """
    return tuple(map(_answer, _QUESTIONS))


def _answer(ask: Callable[[], object]) -> object:
    try:
        return ask()
    except OSError as error:
        return error.errno


def _io_priority() -> int:
    """Where the number of that call is not known, always the same."""
    return 0 if _IOPRIO_GET is None else int(_libc.syscall(_IOPRIO_GET, _IOPRIO_WHO_PROCESS, 0))


def _read(name: str) -> bytes:
    fd = os.open(f"/proc/self/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 4096)
    finally:
        os.close(fd)


_QUESTIONS: tuple[Callable[[], object], ...] = (
    partial(os.getpriority, os.PRIO_PROCESS, 0),
    partial(os.sched_getscheduler, 0),
    partial(os.sched_getaffinity, 0),
    _io_priority,
    *(partial(resource.getrlimit, limit) for limit in _RLIMITS),
    *(partial(_read, name) for name in _FILES),
)
