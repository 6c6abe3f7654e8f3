"""Signals that reach exactly the process they are meant for."""

from __future__ import annotations

import os
import signal

from ..model.identity import Match, ProcessIdentity, compare
from .identity import read_identity, read_stat

# What workers ignore: whatever a program may send its parent by mistake and would end it.  (Real-time
# signals would too, but nobody sends those by mistake, and each costs every start a microsecond or two.)
STRAY_SIGNALS = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGPIPE,
    signal.SIGALRM,
    signal.SIGVTALRM,
    signal.SIGPROF,
    signal.SIGIO,
    signal.SIGPWR,
    signal.SIGXCPU,
    signal.SIGXFSZ,
)


def signal_process(identity: ProcessIdentity, signo: int) -> bool:
    """Send ``signo`` to the process proven to be ``identity``; False if that cannot be proven.

    The order matters: a pidfd pins the process (pidfd_open(2)), then the
    identity is read; if it matches, the pidfd refers to that very process and
    a pid reused later cannot be hit.
    """
    try:
        pidfd = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return False
    except OSError:
        return _signal_without_pidfd(identity, signo)
    try:
        seen = read_identity(identity.pid)
        if seen is None or compare(identity, seen) is not Match.SAME:
            return False
        signal.pidfd_send_signal(pidfd, signo)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(pidfd)
    return True


def signal_ticks(pid: int, start_ticks: int, signo: int) -> bool:
    """The same for a process of this boot and namespace known by its start ticks."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    except OSError:
        return _is_alive(pid, start_ticks) and _kill(pid, signo)
    try:
        if not _is_alive(pid, start_ticks):
            return False
        signal.pidfd_send_signal(pidfd, signo)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(pidfd)
    return True


def _signal_without_pidfd(identity: ProcessIdentity, signo: int) -> bool:
    """Kernels before 5.3: prove, then signal; a window of microseconds remains."""
    seen = read_identity(identity.pid)
    if seen is None or compare(identity, seen) is not Match.SAME:
        return False
    return _kill(identity.pid, signo)


def _is_alive(pid: int, start_ticks: int) -> bool:
    stat = read_stat(pid)
    return stat is not None and not stat.dead and stat.start_ticks == start_ticks


def _kill(pid: int, signo: int) -> bool:
    try:
        os.kill(pid, signo)
    except (ProcessLookupError, PermissionError):
        return False
    return True
