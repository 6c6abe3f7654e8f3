"""What the product needs from this machine, looked at without changing anything."""

from __future__ import annotations

import os
import platform
import stat
import sys
from collections.abc import Iterator

from durable_supervisor import __version__
from durable_supervisor.model.errors import SupervisorError
from durable_supervisor.supervisor.state import state_dir
from durable_supervisor.supervisor.state.file_systems import NETWORK_FILE_SYSTEMS, file_system
from durable_supervisor.supervisor.state.state_dir import StateDir

from .checks import Check
from .machine import machine_checks
from .service import service_checks

_LOW_BYTES = 256 * 1024 * 1024  # far above what a start is refused at: a warning in time


def examine(place: StateDir) -> list[Check]:
    """All checks, in the order to read them."""
    return [
        Check("version", "ok", f"{__version__}, Python {platform.python_version()}, {sys.executable}"),
        *machine_checks(),
        *_directory(place),
        _journal(place),
        *service_checks(place),
    ]


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
    kind = file_system(path)
    if kind in NETWORK_FILE_SYSTEMS:
        yield Check("file system", "bad", f"{kind} is a network file system", "use a local disk")
    else:
        yield Check("file system", "ok", kind or "unknown")
    yield _space(path)


def _owner(place: StateDir) -> Check:
    if not state_dir.is_owned(place):
        return Check("owner", "ok", "nobody right now")
    pid = state_dir.owner_pid(place)
    who = "another process" if pid is None else f"process {pid}"
    return Check("owner", "note", f"{who}; start through its socket, read beside it")


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
