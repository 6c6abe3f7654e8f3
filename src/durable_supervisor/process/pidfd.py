"""Descriptors that stand for a process, not for a pid (pidfd_open(2)): Linux 5.3 and later.

One turns readable when the whole process has ended, whoever its parent is.  Threads that end, copies
that it forked and a program that it executes instead of its own make no difference.
"""

from __future__ import annotations

import errno
import os
import select

from ..model.identity import ProcessIdentity
from .identity import Liveness, probe, read_identity


def open_proven(identity: ProcessIdentity) -> int:
    """A pidfd of exactly this process.  Raises ProcessLookupError when it has ended, and OSError."""
    pidfd = os.pidfd_open(identity.pid)
    try:
        # In this order: a process that is proven while the pidfd holds its pid is the pidfd's.
        liveness = probe(identity)
        if liveness is Liveness.GONE:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        if liveness is Liveness.UNPROVABLE:
            raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
    except BaseException:
        os.close(pidfd)
        raise
    return pidfd


def identify(pidfd: int, pid: int) -> ProcessIdentity | None:
    """Who the process behind the pidfd is, whose number is ``pid``; None if it has ended, or is hidden."""
    identity = read_identity(pid)
    # Still there after it was read: the number was its own all the time.
    return None if has_ended(pidfd) else identity


def has_ended(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))
