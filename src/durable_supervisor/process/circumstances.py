"""What the kernel holds this process to, and any other of its user can change at any time.

A program may do so to its parent by mistake (``renice -p $PPID``, ``keyctl new_session``), and whatever
is started by that parent afterwards inherits it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import partial

from . import own

# Calls that the C library has no function for: ioprio_get, keyctl, sched_getattr.
_NUMBERS = {"x86_64": (252, 250, 315), "aarch64": (31, 219, 275)}.get(os.uname().machine)
_IOPRIO_WHO_PROCESS = 1
_KEYCTL_GET_KEYRING_ID, _SESSION_KEYRING = 0, -3
_SCHED_ATTRIBUTES = 56  # bytes of struct sched_attr, as of Linux 5.3
FILES = (  # see proc(5)
    "self/cgroup",
    "self/limits",  # all of them, where getrlimit(2) tells one
    "self/oom_score_adj",
    "self/timerslack_ns",
    "self/coredump_filter",
)
_libc = ctypes.CDLL(None)
# Kept: a buffer of a size that nobody else has is of a class of its own, which takes longer than to ask.
_attributes = ctypes.create_string_buffer(_SCHED_ATTRIBUTES)


def circumstances() -> tuple[object, ...]:
    """All of them, to be compared with what they were.

    Where one is not to be had, the error stands for it: a filter's stays the same, a shortage's does not.
    """
    try:
        return tuple([ask() for ask in _QUESTIONS])
    except OSError:
        return tuple(map(_answer, _QUESTIONS))


def _answer(ask: Callable[[], object]) -> object:
    try:
        return ask()
    except OSError as error:
        return error.errno


def _by_number() -> tuple[object, ...]:
    """I/O priority, session keyring, scheduling.  Where the numbers of these calls are not known, nothing.

    The keyring is one that a child may put into its parent's place (KEYCTL_SESSION_TO_PARENT), with its keys.
    """
    if _NUMBERS is None:
        return ()
    ioprio_get, keyctl, sched_getattr = _NUMBERS
    return (
        _libc.syscall(ioprio_get, _IOPRIO_WHO_PROCESS, 0),
        _libc.syscall(keyctl, _KEYCTL_GET_KEYRING_ID, _SESSION_KEYRING, 0),
        _libc.syscall(sched_getattr, 0, _attributes, _SCHED_ATTRIBUTES, 0),
        _attributes.raw,
    )


_QUESTIONS: tuple[Callable[[], object], ...] = (
    partial(os.getpriority, os.PRIO_PROCESS, 0),
    partial(os.sched_getscheduler, 0),
    partial(os.sched_getaffinity, 0),
    _by_number,
    *(partial(own.read, name) for name in FILES),
)
