"""Who a process is, so that a reused pid is never taken for it.

A pid alone proves nothing.  Start ticks (field 22 of ``/proc/<pid>/stat``,
proc(5)) count from boot, so together with the boot id they name one process;
they are only comparable inside one pid namespace and one time namespace.
"""

from __future__ import annotations

from enum import StrEnum


class Match(StrEnum):
    SAME = "same"
    DIFFERENT = "different"
    UNPROVABLE = "unprovable"  # another namespace: neither yes nor no can be shown


class ProcessIdentity:
    """``start_ticks`` is in clock ticks since boot; ``create_time`` is Unix seconds.

    ``create_time`` is for people and other platforms: it moves when the wall
    clock steps, so comparison never looks at it.
    """

    __slots__ = ("boot_id", "create_time", "pid", "pid_ns", "start_ticks", "time_ns")

    def __init__(
        self, pid: int, start_ticks: int, boot_id: str, pid_ns: str, time_ns: str, create_time: float
    ) -> None:
        self.pid = pid
        self.start_ticks = start_ticks
        self.boot_id = boot_id
        self.pid_ns = pid_ns
        self.time_ns = time_ns
        self.create_time = create_time

    def __repr__(self) -> str:
        return f"ProcessIdentity(pid={self.pid}, start_ticks={self.start_ticks})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProcessIdentity) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.pid, self.start_ticks, self.boot_id))

    def to_dict(self) -> dict[str, object]:
        """JSON form; the keys are the constructor's names."""
        return {
            "pid": self.pid,
            "create_time": self.create_time,
            "start_ticks": self.start_ticks,
            "boot_id": self.boot_id,
            "pid_ns": self.pid_ns,
            "time_ns": self.time_ns,
        }

    @classmethod
    def from_dict(cls, data: dict[str, object]) -> ProcessIdentity:
        """The reverse of `to_dict`.  Raises ValueError where a field is missing or mistyped."""
        pid, ticks, created = data.get("pid"), data.get("start_ticks"), data.get("create_time")
        boot_id, pid_ns, time_ns = data.get("boot_id"), data.get("pid_ns"), data.get("time_ns")
        if not isinstance(pid, int) or not isinstance(ticks, int) or not isinstance(created, int | float):
            raise ValueError("identity: pid, start_ticks and create_time are numbers")
        if not isinstance(boot_id, str) or not isinstance(pid_ns, str) or not isinstance(time_ns, str):
            raise ValueError("identity: boot_id, pid_ns and time_ns are strings")
        return cls(pid, ticks, boot_id, pid_ns, time_ns, float(created))


def compare(recorded: ProcessIdentity, seen: ProcessIdentity) -> Match:
    """Is the process seen now the one recorded?  Both carry the pid looked up."""
    if recorded.boot_id != seen.boot_id:
        return Match.DIFFERENT  # a reboot ended every process
    if recorded.pid_ns != seen.pid_ns or recorded.time_ns != seen.time_ns:
        return Match.UNPROVABLE
    if recorded.pid == seen.pid and recorded.start_ticks == seen.start_ticks:
        return Match.SAME
    return Match.DIFFERENT


def identity_of(form: dict[str, object] | None) -> ProcessIdentity | None:
    """An identity from its JSON form; None where there is none, or it is not one."""
    if form is None:
        return None
    try:
        return ProcessIdentity.from_dict(form)
    except ValueError:
        return None
