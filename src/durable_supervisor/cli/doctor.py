"""What the product needs from this machine, looked at without changing anything."""

from __future__ import annotations

import ctypes
import os
import platform
import stat
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Literal

from durable_supervisor import __version__
from durable_supervisor.model.errors import SupervisorError
from durable_supervisor.process.clock import boot_id
from durable_supervisor.process.locks import is_locked
from durable_supervisor.supervisor import state_dir
from durable_supervisor.supervisor.hosting import cgroups, service_of
from durable_supervisor.supervisor.state_dir import StateDir

Status = Literal["ok", "note", "bad"]
_PR_GET_CHILD_SUBREAPER = 37
_LOW_BYTES = 256 * 1024 * 1024  # far above what a start is refused at: a warning in time


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at.  ``bad``: runs would be refused or their guarantees would not hold."""

    name: str
    status: Status
    detail: str
    hint: str = ""

    def to_dict(self) -> dict[str, object]:
        """JSON form; the keys are the field names."""
        return asdict(self)


def examine(place: StateDir) -> list[Check]:
    """All checks, in the order to read them."""
    return [
        Check("version", "ok", f"{__version__}, Python {platform.python_version()}, {sys.executable}"),
        *_kernel(),
        Check("boot id", "ok", boot_id()),
        _cgroup(),
        *_directory(place),
        _journal(place),
    ]


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


def _cgroup() -> Check:
    try:
        paths = cgroups()
    except (OSError, IndexError):
        return Check("cgroup", "note", "cannot be read")
    unit = service_of(paths)
    if unit is not None:
        return Check(
            "cgroup",
            "note",
            f"runs started here share the systemd unit {unit}: its restart would end them",
            "set KillMode=process and Delegate=yes in the unit, or start runs from outside it",
        )
    return Check("cgroup", "ok", max(paths, key=len, default="/"))


def _directory(place: StateDir) -> Iterator[Check]:
    try:
        exists = state_dir.check(place)
    except SupervisorError as error:
        yield Check("state directory", "bad", error.message, error.hint)
        return
    if not exists:
        yield Check("state directory", "ok", f"{place.path}: does not exist yet, the first start makes it")
        path = _existing_parent(place.path)
    else:
        path = place.path
        mode = stat.S_IMODE(os.stat(path).st_mode)
        yield Check("state directory", "ok", f"{path}, mode {mode:04o}, uid {os.stat(path).st_uid}")
        yield _owner(place)
    if not os.access(path, os.W_OK | os.X_OK):
        yield Check("writable", "bad", f"{path} is not writable", "choose another --state-dir")
    kind = state_dir.file_system(path)
    if kind in state_dir.NETWORK_FILE_SYSTEMS:
        yield Check("file system", "bad", f"{kind} is a network file system", "use a local disk")
    else:
        yield Check("file system", "ok", kind or "unknown")
    yield _space(path)


def _owner(place: StateDir) -> Check:
    if not state_dir.is_owned(place):
        return Check("owner", "ok", "nobody right now")
    pid = state_dir.owner_pid(place)
    who = "another process" if pid is None else f"process {pid}"
    return Check("owner", "note", f"{who}; reading and controls work beside it")


def _existing_parent(path: str) -> str:
    while not os.path.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return path


def _space(path: str) -> Check:
    try:
        space = os.statvfs(path)
    except OSError as error:
        return Check("free space", "note", error.strerror or "unknown")
    free = space.f_bavail * space.f_frsize
    detail = f"{free // (1024 * 1024)} MiB, {space.f_favail} files"
    if free < _LOW_BYTES:
        return Check("free space", "note", detail, "little space: starts may be refused and output dropped")
    return Check("free space", "ok", detail)


def _journal(place: StateDir) -> Check:
    from durable_supervisor.journal.reader import JournalReader

    try:
        if not os.path.lexists(place.journal):
            if os.path.isdir(place.runs) and os.listdir(place.runs):
                return Check("journal", "bad", "missing beside run logs", "run 'durable-supervisor recover'")
            return Check("journal", "ok", "none yet")
        JournalReader.open(place.journal, busy_seconds=1.0).close()
    except SupervisorError as error:
        return Check("journal", "bad", str(error), error.hint)
    except OSError as error:
        return Check("journal", "bad", error.strerror or "cannot be read")
    return Check("journal", "ok", place.journal)
