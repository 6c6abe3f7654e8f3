"""Read who a process is from /proc, and prove that a recorded one is still there."""

from __future__ import annotations

import os
from enum import StrEnum

from ..model.identity import Match, ProcessIdentity, compare
from .clock import boot_id

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_boot_time = 0.0
_namespaces: dict[str, str] = {}


class Liveness(StrEnum):
    ALIVE = "alive"
    GONE = "gone"  # no such process, a zombie, or another process under its pid
    UNPROVABLE = "unprovable"  # another namespace


class Stat:
    """The few fields of ``/proc/<pid>/stat`` (proc(5)) that matter here."""

    __slots__ = ("foreground", "group", "pid", "ppid", "start_ticks", "state", "threads")

    def __init__(self, pid: int, fields: list[bytes]) -> None:
        """``fields``: those behind the name, from the state on."""
        self.pid = pid
        self.state = fields[0].decode("ascii")
        self.ppid = int(fields[1])
        self.group = int(fields[2])
        self.foreground = int(fields[5])  # the foreground group of its terminal; -1 without one
        self.threads = int(fields[17])
        self.start_ticks = int(fields[19])

    @property
    def dead(self) -> bool:
        """A zombie (or a task on its way out) runs no more code.

        The state is that of the first thread alone: when that one has left by itself
        (pthread_exit(3)) it is a zombie, and the others go on.
        """
        return self.state in "ZX" and self.threads <= 1


def stands_still(pid: int) -> bool:
    """Is it stopped, dead or gone, so that it would take nothing that it is given now?"""
    stat = read_stat(pid)
    return stat is None or stat.dead or stat.state in "Tt"


def read_stat(pid: int) -> Stat | None:
    """None when there is no such process (or it went away while being read)."""
    try:
        # By plain calls: a file object asks the kernel three things more for each.
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            line = os.read(fd, 4096)  # it has some 50 numbers and a name of 15 bytes
        finally:
            os.close(fd)
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may hold spaces and parentheses: cut at the last one.
    return Stat(pid, line[line.rindex(b")") + 2 :].split())


def read_identity(pid: int) -> ProcessIdentity | None:
    """The identity of a living process, seen from our own namespaces; None if gone or a zombie."""
    stat = read_stat(pid)
    if stat is None or stat.dead:
        return None
    return identity_from_stat(stat)


def identity_from_stat(stat: Stat) -> ProcessIdentity:
    created = _boot_time_seconds() + stat.start_ticks / _TICKS_PER_SECOND
    return ProcessIdentity(
        stat.pid, stat.start_ticks, boot_id(), _namespace("pid"), _namespace("time"), round(created, 2)
    )


def self_identity() -> ProcessIdentity:
    """Our own identity."""
    identity = read_identity(os.getpid())
    if identity is None:  # /proc not mounted, or mounted for another pid namespace
        raise OSError("cannot read this process's own entry in /proc")
    return identity


def probe(recorded: ProcessIdentity) -> Liveness:
    """Is the recorded process alive?  Never mistakes a reused pid for it."""
    return look_up(recorded)[0]


def look_up(recorded: ProcessIdentity) -> tuple[Liveness, ProcessIdentity | None]:
    """As `probe`, and who has its pid now, where that is another process of this boot."""
    if recorded.boot_id != boot_id():
        return Liveness.GONE, None
    if recorded.pid_ns != _namespace("pid") or recorded.time_ns != _namespace("time"):
        return Liveness.UNPROVABLE, None
    seen = read_identity(recorded.pid)
    if seen is None:
        return Liveness.GONE, None
    if compare(recorded, seen) is Match.DIFFERENT:
        return Liveness.GONE, seen
    return Liveness.ALIVE, None


def _namespace(kind: str) -> str:
    """Read once: a process does not leave its own pid namespace (pid_namespaces(7))."""
    if kind not in _namespaces:
        try:
            _namespaces[kind] = os.readlink(f"/proc/self/ns/{kind}")
        except OSError:
            _namespaces[kind] = ""  # a kernel without this namespace kind: the same for everybody
    return _namespaces[kind]


def sees_own_processes() -> bool:
    """Does /proc show our own pid namespace, with the numbers that processes have for us?

    Where that of an outer namespace is still mounted, another process is found under each of our numbers: who
    was looked up by a pid there is not who a signal to that pid reaches.  Raises OSError.
    """
    with open("/proc/self/status", "rb") as file:
        for line in file:
            if line.startswith(b"NSpid:"):  # our number in that namespace, and in each one below it
                return len(line.split()) == 2
    return True  # a kernel without these namespaces


def warm() -> None:
    """Read now what stays the same, so that processes forked from this one need not."""
    self_identity()


def _boot_time_seconds() -> float:
    """``btime`` of /proc/stat: Unix seconds; moves when the wall clock is stepped."""
    global _boot_time
    if not _boot_time:
        with open("/proc/stat", "rb") as file:
            for line in file:
                if line.startswith(b"btime "):
                    _boot_time = float(line.split()[1])
                    break
    return _boot_time
