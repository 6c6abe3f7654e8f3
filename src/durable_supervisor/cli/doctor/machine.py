"""The doctor's look at the machine: kernel, clocks, workers, and what can be enforced."""

from __future__ import annotations

import ctypes
import os
import platform
import select
import signal
import socket
import time
from collections.abc import Iterator

from durable_supervisor.model.capabilities import Capability
from durable_supervisor.model.enforcement import AXES, FULL
from durable_supervisor.process.clock import boot_id
from durable_supervisor.process.locks import is_locked
from durable_supervisor.supervisor.admission.host import UNIT_VARIABLE, cgroups, service_of
from durable_supervisor.supervisor.policy.capabilities import capabilities
from durable_supervisor.supervisor.workers.spawn import spawn_zygote

from .checks import Check

_PR_GET_CHILD_SUBREAPER = 37
_FORK_SECONDS = 10.0
_RELEASED = 1_764_000_000  # this code is no older than November 2025


def machine_checks() -> Iterator[Check]:
    """In the order to read them."""
    yield from _kernel()
    yield Check("boot id", "ok", boot_id())
    yield _clock()
    yield _fork()
    yield _cgroup()
    yield from _enforcement()


def _kernel() -> Iterator[Check]:
    system = platform.system()
    yield Check("system", "ok" if system == "Linux" else "bad", f"{system} {platform.release()}")
    try:
        os.close(os.pidfd_open(os.getpid()))
        yield Check("pidfd", "ok", "signals go through pidfds")
    except (AttributeError, OSError):
        yield Check(
            "pidfd", "note", "missing: identities are proven just before a signal", "Linux 5.3 has it"
        )
    try:
        memory = os.memfd_create("doctor")
        try:
            is_locked(memory)
        finally:
            os.close(memory)
        yield Check("OFD locks", "ok", "the lock of a run log is its proof of life")
    except (AttributeError, OSError):
        yield Check("OFD locks", "bad", "missing", "Linux 3.15 or newer is needed")
    value = ctypes.c_int()
    kept = ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(value), 0, 0, 0) == 0
    yield Check("subreaper", "ok" if kept else "bad", "daemons stay within reach" if kept else "missing")


def _clock() -> Check:
    """Wall time is for people; deadlines count on CLOCK_BOOTTIME, idle time on CLOCK_MONOTONIC."""
    if time.time() < _RELEASED:
        shown = time.strftime("%Y-%m-%d", time.gmtime())
        return Check(
            "clock", "note", f"the wall clock says {shown}", "set it: the times of events come from it"
        )
    up, awake = time.clock_gettime(time.CLOCK_BOOTTIME), time.monotonic()
    return Check("clock", "ok", f"up {_hours(up)}, of it asleep {_hours(max(0.0, up - awake))}")


def _hours(seconds: float) -> str:
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60):02d} min"


def _fork() -> Check:
    """Start what forks the workers, by exec as an owner does, and see it load and leave in good order."""
    try:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            began = time.monotonic()
            pid = spawn_zygote(theirs.fileno())
    except OSError as error:
        hint = "free memory or processes, or raise the limit (ulimit -u)"
        return Check("workers", "bad", f"cannot be started: {error.strerror}", hint)
    if _left_well(pid):
        return Check("workers", "ok", f"start within {(time.monotonic() - began) * 1000:.0f} ms")
    return Check(
        "workers", "bad", "do not load", "reinstall the product; sys.executable must be able to import it"
    )


def _left_well(pid: int) -> bool:
    """It leaves with 0 once the other end of its control socket has closed."""
    fd = os.pidfd_open(pid)
    try:
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        if not poller.poll(_FORK_SECONDS * 1000):
            signal.pidfd_send_signal(fd, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        os.close(fd)


def _cgroup() -> Check:
    try:
        paths = cgroups()
    except (OSError, IndexError):
        return Check("cgroup", "note", "cannot be read")
    unit = service_of(paths)
    if unit is not None and unit != os.environ.get(UNIT_VARIABLE):
        return Check(
            "cgroup",
            "note",
            f"runs started here share the systemd unit {unit}: its restart would end them",
            "set KillMode=process and Delegate=yes in the unit, or start runs from outside it",
        )
    return Check("cgroup", "ok", max(paths, key=len, default="/"))


def _enforcement() -> Iterator[Check]:
    """What a program can be held to here, axis by axis."""
    found = capabilities()
    for axis in AXES:
        ways = found.of(axis)
        held = ", ".join(
            f"{one.asked}: {one.applied}{f' ({one.mechanism})' if one.mechanism else ''}" for one in ways
        )
        in_full = {_field(one) for one in ways if one.applied == FULL}
        lacking = [one.reason for one in ways if one.reason and _field(one) not in in_full]
        lacks = _together(lacking)
        yield Check(axis.replace("_", " "), "note" if lacks else "ok", held, lacks)
    for name, reason in found.probes["failed"].items():
        yield Check(f"probe {name}", "note", f"could not tell: {reason}")


def _together(reasons: list[str]) -> str:
    """What two of them come down to alike is said once: ``each by itself; no share: no group``."""
    different = list(dict.fromkeys(reasons))
    ends = {reason.rpartition(": ")[2] for reason in different}
    if len(different) < 2 or len(ends) > 1:
        return "; ".join(different)
    [end] = ends
    heads = [reason.removesuffix(end).removesuffix(": ") for reason in different]
    return f"{'; '.join(filter(None, heads))}: {end}"


def _field(one: Capability) -> str:
    """What asks for it; ``filesystem, landlock`` is one way of two to have it."""
    return one.asked.split(",")[0]
