"""Facts about the process that embeds the supervisor, which a run inherits or depends on."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from functools import cache

from ...model.command import Command
from ...model.environment import inherited_names
from ...model.errors import ErrorCode, Phase, SupervisorError
from ...model.identity import ProcessIdentity
from ...process import forks
from ...process.caller import (
    RUN_ID_VARIABLE,
    outer_run,
    own_directory,
    own_variables,
    read_umask,
    umask_in,
)
from ...process.clock import boot_id
from ...process.identity import sees_own_processes
from ...process.pidfd import identify
from ...process.shortage import is_shortage
from .admission import Host

UNIT_VARIABLE = "DURABLE_SUPERVISOR_UNIT"  # set in a unit file beside KillMode=process, to the unit's name


def read_host(command: Command, umask: Callable[[], int] = read_umask) -> Host:
    """What ``command`` takes of this process, and what surrounds that: all as it is now.

    A caller that is cancelled, and puts its umask back, may be gone before the intent is committed.
    Raises ``BUSY`` where the process has no descriptor left to read them with.
    """
    try:
        process = own_process(os.getpid())
        environ = own_variables((RUN_ID_VARIABLE, *inherited_names(command)))
        outer = outer_run(environ)
        return Host(environ, own_directory(), umask(), outer, survives_unit_restart(), process)
    except OSError as error:
        raise short_of(error, Phase.ADMIT) from error


class OwnUmask:
    """As `read_umask`, for who asks again and again: to open the file takes twice as long as to read it."""

    def __init__(self) -> None:
        self._status = -1

    def read(self) -> int:
        """As it is now.  Raises OSError."""
        if self._status < 0:
            self._status = forks.opened(lambda: os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC))
        return umask_in(os.pread(self._status, 4096, 0))

    def close(self) -> None:
        """Idempotent."""
        if self._status >= 0:
            status, self._status = self._status, -1
            forks.close(status)


def short_of(error: OSError, phase: Phase) -> SupervisorError:
    """``BUSY``: the process, or the machine, has run out of something for the moment."""
    what, hint = "open another file", "close some descriptors, or raise the limit (ulimit -n)"
    if error.errno == errno.EAGAIN:
        what, hint = "start another thread", "end some processes, or raise the limit (ulimit -u, pids.max)"
    return SupervisorError(
        ErrorCode.BUSY,
        f"this process cannot {what}: {error.strerror}",
        phase=phase,
        retryable=True,
        hint=hint,
    )


def check_proc() -> None:
    """Raises ``UNSUPPORTED_PLATFORM`` where /proc cannot prove who a process is; ``BUSY``."""
    try:
        boot_id()
        if sees_own_processes():
            return
        problem = "it is of another pid namespace"
    except OSError as error:
        if is_shortage(error):
            raise short_of(error, Phase.OPEN) from error
        problem = f"{error.filename}: {error.strerror}"
    raise SupervisorError(
        ErrorCode.UNSUPPORTED_PLATFORM,
        f"/proc cannot prove who a process is: {problem}",
        phase=Phase.OPEN,
        hint="mount one of this process's own namespaces: mount -t proc proc /proc (a unit: ProcSubset=all)",
    )


@cache
def own_process(pid: int) -> ProcessIdentity | None:
    """Who this process is; None where the kernel cannot watch it (before 5.3), or without /proc.

    ``pid``: its own, which a forked copy of it does not share.  Raises OSError.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except OSError as error:
        if is_shortage(error):
            raise
        return None
    try:
        return identify(pidfd, pid)
    finally:
        os.close(pidfd)


@cache
def survives_unit_restart() -> bool | None:
    """False inside a systemd service, whose restart ends everything in its cgroup (systemd.kill(5)).

    A service with ``KillMode=process`` spares the workers, but cannot be told apart from
    here, unless it says so: our own unit names itself in ``$DURABLE_SUPERVISOR_UNIT``.
    None where cgroups cannot be read.
    """
    try:
        unit = service_of(cgroups())
        return unit is None or unit == os.environ.get(UNIT_VARIABLE)
    except (OSError, IndexError):
        return None


def cgroups() -> list[str]:
    """Of this process, one for each hierarchy (cgroups(7)).  Raises OSError."""
    with open("/proc/self/cgroup", encoding="utf-8", errors="replace") as file:
        return [line.rstrip("\n").split(":", 2)[2] for line in file]


def service_of(paths: list[str]) -> str | None:
    """The innermost systemd service that these cgroups belong to."""
    parts = [part for path in paths for part in reversed(path.split("/"))]
    # user@1000.service is the session manager itself, not a unit that is restarted.
    units = (part for part in parts if part.endswith(".service") and not part.startswith("user@"))
    return next(units, None)
