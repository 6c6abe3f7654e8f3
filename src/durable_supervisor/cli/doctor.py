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

Status = Literal["ok", "note", "bad"]
_PR_GET_CHILD_SUBREAPER = 37
_LOW_BYTES = 256 * 1024 * 1024
_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "fuse.sshfs", "glusterfs"})


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


def examine(state_dir: str) -> list[Check]:
    """All checks, in the order to read them."""
    return [
        Check("version", "ok", f"{__version__}, Python {platform.python_version()}, {sys.executable}"),
        *_kernel(),
        Check("boot id", "ok", boot_id()),
        _cgroup(),
        *_directory(state_dir),
        _journal(state_dir),
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
        with open("/proc/self/cgroup", encoding="utf-8", errors="replace") as file:
            paths = [entry.rstrip("\n").split(":", 2)[-1] for entry in file]
    except OSError:
        return Check("cgroup", "note", "cannot be read")
    path = max(paths, key=len, default="/")
    unit = path.rpartition("/")[2]
    if unit.endswith(".service") and not unit.startswith("user@"):
        return Check(
            "cgroup",
            "note",
            f"runs started here share the systemd unit {unit}: its restart would end them",
            "set KillMode=process and Delegate=yes in the unit, or start runs from outside it",
        )
    return Check("cgroup", "ok", path)


def _directory(path: str) -> Iterator[Check]:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        yield Check("state directory", "ok", f"{path}: does not exist yet, the first start makes it")
        path = _existing_parent(path)
    except OSError as error:
        yield Check("state directory", "bad", f"{path}: {error.strerror}", "choose another --state-dir")
        return
    else:
        yield _mode(path, found)
        yield _owner_process(path)
    kind = _filesystem(path)
    if kind in _NETWORK:
        yield Check("file system", "bad", f"{kind} is a network file system", "use a local disk")
    else:
        yield Check("file system", "ok", kind)
    yield _space(path)


def _mode(path: str, found: os.stat_result) -> Check:
    mode = stat.S_IMODE(found.st_mode)
    detail = f"{path}: mode {mode:04o}, uid {found.st_uid}"
    if stat.S_ISLNK(found.st_mode) or not stat.S_ISDIR(found.st_mode):
        return Check("state directory", "bad", f"{path}: is not a directory", "choose another --state-dir")
    if found.st_uid != os.geteuid():
        return Check("state directory", "bad", detail, f"another user's; we are uid {os.geteuid()}")
    if mode & 0o077:
        return Check("state directory", "bad", detail, "others can look in; chmod 700 it")
    if not os.access(path, os.W_OK | os.X_OK):
        return Check("state directory", "bad", f"{detail}, not writable", "make it writable")
    return Check("state directory", "ok", detail)


def _owner_process(path: str) -> Check:
    """Who holds ``supervisor.lock``, from /proc/locks (proc(5)): the holder is never disturbed."""
    try:
        found = os.stat(os.path.join(path, "supervisor.lock"))
    except OSError:
        return Check("owner", "ok", "nobody has opened it yet")
    suffix = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    try:
        with open("/proc/locks", encoding="ascii", errors="replace") as file:
            pids = [words[4] for words in map(str.split, file) if len(words) > 5 and words[5] == suffix]
    except OSError:
        return Check("owner", "note", "cannot be told on this system")
    if not pids:
        return Check("owner", "ok", "nobody right now")
    return Check("owner", "note", f"process {pids[0]}; reading and controls work beside it")


def _existing_parent(path: str) -> str:
    while not os.path.exists(path):
        above = os.path.dirname(os.path.abspath(path))
        if above == path:
            break
        path = above
    return path


def _filesystem(path: str) -> str:
    """The type of the file system that holds ``path``: its mount point is the longest that matches."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            mounts = [entry.split() for entry in file]
        device = os.stat(path).st_dev
    except OSError:
        return "unknown"
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for words in mounts:
        if words[2] == wanted and "-" in words:
            return words[words.index("-") + 1]
    return "unknown"


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


def _journal(state_dir: str) -> Check:
    from durable_supervisor.journal.reader import JournalReader

    path = os.path.join(state_dir, "journal.db")
    runs = os.path.join(state_dir, "runs")
    if not os.path.lexists(path):
        if os.path.isdir(runs) and os.listdir(runs):
            return Check("journal", "bad", "missing beside run logs", "run 'dsup recover'")
        return Check("journal", "ok", "none yet")
    try:
        JournalReader.open(path, busy_seconds=1.0).close()
    except SupervisorError as error:
        return Check("journal", "bad", str(error), error.hint)
    return Check("journal", "ok", path)
