"""Start a worker by exec, with its channel and the locked log as descriptors."""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from functools import partial

from ...process import forks, open_files
from ...process.failpoints import VARIABLE as FAILPOINTS
from ...worker import __main__ as entry
from ...worker import zygote
from ...worker.numbers import CHANNEL_FD, LOG_FD

_HIGH = 16  # above every number that the worker's own descriptors get


def spawn_worker(run_id: str, channel_fd: int, log_fd: int, cause: str | None = None) -> int:
    """The pid of a new worker, which leads its own session.  Raises OSError (EAGAIN, ENOMEM, …).

    ``cause``: why the zygote did not fork it, which it logs.
    """
    arguments = [str(entry.__file__), run_id, *([cause] if cause is not None else [])]
    return _spawn(arguments, {LOG_FD: log_fd, CHANNEL_FD: channel_fd})


async def spawn_or_record(
    blocking: Callable[[Callable[[], int]], Awaitable[int]],
    run_id: str,
    channel: int,
    log: int,
    log_path: str,
    cause: str | None = None,
) -> int:
    """As `spawn_worker`, ``blocking``.  Of an OSError the run's log knows as well."""
    try:
        return await blocking(lambda: spawn_worker(run_id, channel, log, cause))
    except OSError as error:
        from .unspawned import record  # hardly ever

        record(log, log_path, error)  # here: without a process there may be no thread either
        raise


def spawn_prestarted(handover_fd: int) -> int:
    """The pid of a worker that will get its run over ``handover_fd``; see `prestarted`.  Raises OSError."""
    return _spawn([str(entry.__file__), entry.PRESTARTED], {zygote.HANDOVER_FD: handover_fd})


def spawn_zygote(control_fd: int) -> int:
    """The pid of a new zygote; see `worker.zygote`.  Raises OSError."""
    return _spawn([str(zygote.__file__)], {zygote.CONTROL_FD: control_fd})


def spawn_probe(output_fd: int) -> int:
    """The pid of a process that finds out what can be enforced here; see `sandbox.probe`.  Raises OSError."""
    from ...sandbox import probe  # not of every start

    return _spawn([str(probe.__file__)], {1: output_fd})


def _spawn(arguments: list[str], descriptors: dict[int, int]) -> int:
    """posix_spawn(3): safe in a host with threads, and it does not copy a large host's memory."""
    copies: dict[int, int] = {}
    try:
        for number, fd in descriptors.items():
            copies[number] = forks.opened(partial(fcntl.fcntl, fd, fcntl.F_DUPFD_CLOEXEC, _HIGH))
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", "-X", "utf8", *arguments],
            _environment(),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0),
                (os.POSIX_SPAWN_DUP2, 0, 1),
                (os.POSIX_SPAWN_DUP2, 0, 2),
                *((os.POSIX_SPAWN_DUP2, fd, number) for number, fd in copies.items()),
            ],
            setsid=True,
            setsigmask=[],
            # A signal ignored by the host would stay ignored over exec (signal(7)).
            setsigdef=[one for one in signal.valid_signals() if one not in (signal.SIGKILL, signal.SIGSTOP)],
        )
        open_files.give_back(pid)
        return pid
    finally:
        for fd in copies.values():
            forks.close(fd)


def _environment() -> dict[str, str]:
    """Nothing of the host's: what the program gets travels in the spec."""
    armed = os.environ.get(FAILPOINTS)
    return {FAILPOINTS: armed} if armed else {}
