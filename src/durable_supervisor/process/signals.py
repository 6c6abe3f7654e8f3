"""Signals that reach exactly the process they are meant for, and what this process does with its own."""

from __future__ import annotations

# What `signal` is made of.  `signal.signal` answers with an enum's member, for which nobody here
# asks; the machinery that makes it is some 20 pages of memory that every worker would hold a copy of.
import _signal  # type: ignore[import-not-found]
import os
import signal
from collections.abc import Iterable

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


def ignore(signals: Iterable[int]) -> None:
    for signo in signals:
        _signal.signal(signo, _signal.SIG_IGN)


def reset(signals: Iterable[int]) -> None:
    """To what the kernel does by default."""
    for signo in signals:
        _signal.signal(signo, _signal.SIG_DFL)


def note(signals: Iterable[int]) -> None:
    """Have them written to the wake-up descriptor (`signal.set_wakeup_fd`), and do nothing else."""
    for signo in signals:
        _signal.signal(signo, _noted)


def _noted(signo: int, frame: object) -> None:
    """The wake-up descriptor has it."""


def unblock_all() -> None:
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())


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
        same = seen is not None and compare(identity, seen) is Match.SAME
        return same and _send(pidfd, identity.pid, signo)
    except PermissionError:  # another user's, on a /proc mounted with hidepid
        return False
    finally:
        os.close(pidfd)


def signal_ticks(pid: int, start_ticks: int, signo: int) -> bool:
    """The same for a process of this boot and namespace known by its start ticks."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    except OSError:
        return _is_alive(pid, start_ticks) and _kill(pid, signo)
    try:
        return _is_alive(pid, start_ticks) and _send(pidfd, pid, signo)
    except PermissionError:
        return False
    finally:
        os.close(pidfd)


def _send(pidfd: int, pid: int, signo: int) -> bool:
    """To a process that was just proven to be the one of its pidfd."""
    try:
        signal.pidfd_send_signal(pidfd, signo)
    except ProcessLookupError:
        return False
    except OSError:
        return _may_not_send() and _kill(pid, signo)
    return True


def _may_not_send() -> bool:
    """Does a filter of calls let us open pidfds, and not use them?  Then it goes as before Linux 5.3.

    False also where nobody can tell, for want of a descriptor.
    """
    try:
        pidfd = os.pidfd_open(os.getpid())
    except OSError:
        return False
    try:
        signal.pidfd_send_signal(pidfd, 0)
    except OSError:
        return True
    finally:
        os.close(pidfd)
    return False


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
