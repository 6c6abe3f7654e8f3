"""Start a worker by exec, with its channel and the locked log as descriptors."""

from __future__ import annotations

import fcntl
import os
import signal
import sys

from ..process.failpoints import VARIABLE as FAILPOINTS
from ..worker import __main__ as entry
from ..worker.spec import CHANNEL_FD, LOG_FD
from . import forks

_HIGH = 16  # above every number that the worker's own descriptors get


def spawn_worker(run_id: str, channel_fd: int, log_fd: int) -> int:
    """The pid of a new worker.  It leads its own session; ours keeps no copy of its descriptors open.

    posix_spawn(3) is safe in a host with threads and does not copy a large host's
    memory.  Raises OSError (EAGAIN, ENOMEM, …).
    """
    channel = forks.guard(fcntl.fcntl(channel_fd, fcntl.F_DUPFD_CLOEXEC, _HIGH))
    log = forks.guard(fcntl.fcntl(log_fd, fcntl.F_DUPFD_CLOEXEC, _HIGH))
    try:
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", "-X", "utf8", str(entry.__file__), run_id],
            _environment(),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0),
                (os.POSIX_SPAWN_DUP2, 0, 1),
                (os.POSIX_SPAWN_DUP2, 0, 2),
                (os.POSIX_SPAWN_DUP2, channel, CHANNEL_FD),
                (os.POSIX_SPAWN_DUP2, log, LOG_FD),
            ],
            setsid=True,
            setsigmask=[],
            # A signal ignored by the host would stay ignored over exec (signal(7)).
            setsigdef=[one for one in signal.valid_signals() if one not in (signal.SIGKILL, signal.SIGSTOP)],
        )
    finally:
        forks.close(channel)
        forks.close(log)


def _environment() -> dict[str, str]:
    """Nothing of the host's: what the program gets travels in the spec."""
    armed = os.environ.get(FAILPOINTS)
    return {FAILPOINTS: armed} if armed else {}
