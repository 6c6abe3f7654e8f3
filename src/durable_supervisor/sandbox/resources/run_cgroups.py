"""One run's groups of processes: limits for the whole tree, its accounts, and a kill that misses nobody.

A process cannot leave its groups by forking, by another session or by losing its parent; only by writing
to the files of groups, which is why those are read-only for a confined program wherever that can be had.

The plan's part is made by `sandbox.resources.cgroups.layout`.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Mapping

from ..kernel import write

PREFIX = "dsup-"
_PERIOD = 100_000  # microseconds over which a processor share is dealt out
_LEAST_QUOTA = 1_000  # the kernel's
_SHARE_OF_SOCKETS = 8  # of the limit on memory, one part
_SETTLED = 0.5  # seconds for the kernel to let go of a group whose last process was reaped
_PAUSE = 0.001
CONTROLLER_OF = {"memory": "memory", "processes": "pids", "cpus": "cpu"}  # by limit
_AXIS = {"memory": "memory", "processes": "processes", "cpus": "cpu"}
_EVENTS = 4096  # bytes that are more than such a file has


class RunCgroups:
    """The groups of one run.  Made and left by its worker, which is in none of them.

    ``name`` says whose they are, for people and for `leftovers`: directory id, run id and attempt, with dots.
    """

    def __init__(self, plan: Mapping[str, object], name: str) -> None:
        v2, v1 = plan.get("v2"), plan.get("v1")
        self._plan = plan
        self._v2 = os.path.join(v2, PREFIX + name) if isinstance(v2, str) else None
        parents = v1 if isinstance(v1, dict) else {}
        self._v1 = {controller: os.path.join(parent, PREFIX + name) for controller, parent in parents.items()}
        self._made: list[str] = []

    def make(self) -> dict[str, str]:
        """Make the groups and set their limits.  Answers why, by axis, for what could not be."""
        failed: dict[str, str] = {}
        for directory in dict.fromkeys([*filter(None, [self._v2]), *self._v1.values()]):
            self._attempt(failed, self._axes_of(directory), self._mkdir, directory)
        for limit, set_limit in (
            ("memory", self._limit_memory),
            ("processes", self._limit_processes),
            ("cpus", self._limit_cpus),
        ):
            if self._plan.get(limit) is not None and _AXIS[limit] not in failed:
                self._attempt(failed, [_AXIS[limit]], set_limit)
        return failed

    def add(self, pid: int) -> dict[str, str]:
        """Put a paused process into all of them, and what it will fork with it.  As `make`."""
        failed: dict[str, str] = {}
        for directory in self._made:
            procs = os.path.join(directory, "cgroup.procs")
            self._attempt(failed, self._axes_of(directory), write, procs, str(pid))
        return failed

    def kill(self) -> None:
        """SIGKILL to everything in them at once; where the kernel cannot, at least nobody forks any more."""
        for directory in self._made:
            kill_group(directory)

    def empty(self) -> bool:
        """Does the kernel say that no process is left in the group of version 2, nor below?

        True also where there is none.  A process that was just reaped may count for a moment.
        """
        if self._v2 not in self._made:
            return True
        events = os.path.join(self._v2, "cgroup.events")
        return soon(lambda: _field(events, "populated") != 1)

    def oom_kills(self) -> int:
        """How many processes of the tree the kernel has killed for want of memory.

        The count rises before the process dies, so it is complete once that was reaped.
        """
        home = self._home("memory")
        if home not in self._made:
            return 0
        name = "memory.oom_control" if "memory" in self._v1 else "memory.events"
        return _field(os.path.join(home, name), "oom_kill") or 0

    def oom_watch(self) -> tuple[int, int] | None:
        """A descriptor, and the events of epoll(7) on it, when `oom_kills` may have changed.

        None where memory is not limited.  Raises OSError.
        """
        home = self._home("memory")
        if home not in self._made or self._plan.get("memory") is None:
            return None
        if "memory" not in self._v1:
            fd = os.open(os.path.join(home, "memory.events"), os.O_RDONLY | os.O_CLOEXEC)
            self.oom_heard(fd)  # only what changes after a read is told
            return fd, select.EPOLLPRI
        return _v1_oom_events(home), select.EPOLLIN

    def oom_heard(self, fd: int) -> bool:
        """What the descriptor of `oom_watch` told was heard: it tells the next.

        True where that was the want alone, and a kill may follow without a word: in version 1.
        Raises OSError for a group that is gone.
        """
        if "memory" in self._v1:
            os.read(fd, 8)
            return True
        os.pread(fd, _EVENTS, 0)
        return False

    def cpu_seconds(self) -> float | None:
        """Processor time of everything that ever was in them; None where nobody counts."""
        if self._v2 in self._made:
            used = _field(os.path.join(self._v2, "cpu.stat"), "usage_usec")
            return None if used is None else used / 1e6
        directory = self._v1.get("cpuacct")
        if directory not in self._made:
            return None
        try:
            with open(os.path.join(directory, "cpuacct.usage"), "rb") as file:
                return int(file.read()) / 1e9
        except OSError:
            return None  # removed by a program that could leave it

    def remove(self) -> None:
        """Remove them once empty.  One that is not stays, for whoever ends what is left: `leftovers`."""
        for directory in self._made:
            remove_soon(directory)
        self._made = []

    def _mkdir(self, directory: str) -> None:
        os.mkdir(directory, 0o755)  # one that exists is somebody else's
        self._made.append(directory)

    def _limit_memory(self) -> None:
        limit = str(self._plan["memory"])
        if "memory" in self._v1:
            self._set("memory", "memory.limit_in_bytes", limit)
            self._set("memory", "memory.memsw.limit_in_bytes", limit, needed=False)
            # What waits in sockets is counted apart there, and not at all unless it is bounded.
            sockets = str(int(limit) // _SHARE_OF_SOCKETS)
            self._set("memory", "memory.kmem.tcp.limit_in_bytes", sockets, needed=False)
        else:
            self._set("memory", "memory.max", limit)
            self._set("memory", "memory.swap.max", "0", needed=False)
            self._set("memory", "memory.oom.group", "1", needed=False)

    def _limit_processes(self) -> None:
        self._set("pids", "pids.max", str(self._plan["processes"]))

    def _limit_cpus(self) -> None:
        quota = max(round(float(str(self._plan["cpus"])) * _PERIOD), _LEAST_QUOTA)
        if "cpu" in self._v1:
            self._set("cpu", "cpu.cfs_period_us", str(_PERIOD))
            self._set("cpu", "cpu.cfs_quota_us", str(quota))
        else:
            self._set("cpu", "cpu.max", f"{quota} {_PERIOD}")

    def _set(self, controller: str, name: str, value: str, *, needed: bool = True) -> None:
        """``needed``: false where a kernel without the file has nothing to bound: it counts no swap."""
        home = self._home(controller)
        if home is None or (not needed and not os.path.exists(os.path.join(home, name))):
            return
        write(os.path.join(home, name), value)

    def _home(self, controller: str) -> str | None:
        """In which group this controller is: the plan names those of version 1 alone."""
        return self._v1.get(controller, self._v2)

    def _axes_of(self, directory: str) -> list[str]:
        """What is lost without this group."""
        axes = [
            _AXIS[limit]
            for limit, controller in CONTROLLER_OF.items()
            if self._plan.get(limit) is not None and self._home(controller) == directory
        ]
        if directory == self._v2:
            axes.append("tree")
        if self._plan.get("accounts") and directory == (self._v2 or self._v1.get("cpuacct")):
            axes.append("cpu")
        return axes

    def _attempt(
        self, failed: dict[str, str], axes: list[str], step: Callable[..., None], *arguments: str
    ) -> None:
        try:
            step(*arguments)
        except OSError as error:
            failed.update(dict.fromkeys(axes, f"a cgroup cannot be used: {error.strerror}"))


def leftovers(parents: list[str], directory_id: str) -> dict[str, list[str]]:
    """Groups beneath ``parents`` that runs of this state directory left behind: directories by run id."""
    found: dict[str, list[str]] = {}
    wanted = f"{PREFIX}{directory_id}."
    for parent in dict.fromkeys(parents):
        try:
            names = [name for name in os.listdir(parent) if name.startswith(wanted)]
        except OSError:
            continue
        for name in names:
            found.setdefault(name[len(wanted) :].partition(".")[0], []).append(os.path.join(parent, name))
    return found


def remove_group(directory: str) -> bool:
    """Remove a group and those that its processes made beneath it.  False: something is alive in it."""
    for below, _, _ in os.walk(directory, topdown=False):
        try:
            os.rmdir(below)
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return True


def kill_group(directory: str) -> None:
    """Nobody in it forks any more, and SIGKILL to all; each where this kind of group can.

    What it cannot do is left to the walk over the tree.
    """
    for name, value in (("pids.max", "0"), ("cgroup.kill", "1")):
        try:
            write(os.path.join(directory, name), value)
        except OSError:
            continue


def remove_soon(directory: str) -> bool:
    """`remove_group`, for one whose last process was only just reaped."""
    return soon(lambda: remove_group(directory))


def _v1_oom_events(group: str) -> int:
    """An eventfd that is written to whenever the group is out of memory."""
    events = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    try:
        control = os.open(os.path.join(group, "memory.oom_control"), os.O_RDONLY | os.O_CLOEXEC)
        try:
            write(os.path.join(group, "cgroup.event_control"), f"{events} {control}")
        finally:
            os.close(control)
    except OSError:
        os.close(events)
        raise
    return events


def _field(path: str, name: str) -> int | None:
    """A number from a file of lines ``name number``; None where it is not."""
    try:
        with open(path, encoding="ascii") as file:
            return next((int(line.split()[1]) for line in file if line.split()[0] == name), None)
    except OSError:
        return None


def soon(condition: Callable[[], bool]) -> bool:
    """Is it so, or will it be in a moment?  The kernel tells nobody when it lets go of a group."""
    until = time.monotonic() + _SETTLED
    while not condition():
        if time.monotonic() >= until:
            return False
        time.sleep(_PAUSE)
    return True
