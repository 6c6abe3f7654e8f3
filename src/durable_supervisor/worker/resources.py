"""What a run's tree may use, held by the kernel in groups of its own and watched from here.

Imported only for a run with a plan.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from ..sandbox.plan import Plan
from ..sandbox.resources.run_cgroups import RunCgroups
from .poller import Poller
from .tending import OUT_OF_MEMORY

CPU_TIME = "cpu_time"  # as a reason: of a stop
_SOONEST = 0.005  # seconds to the next look at the processor time
_OOM_PAUSE = 0.01
_OOM_LOOKS = 100


class Resources:
    """The groups of one run, from before the fork until the tree is gone."""

    def __init__(self, plan: Plan, name: str) -> None:
        self._groups = RunCgroups(plan.cgroups or {}, name)
        self._cpu_seconds = plan.cpu_seconds
        self._cpus = _processors((plan.cgroups or {}).get("cpus"))
        self._short: tuple[int, int] | None = None  # descriptor and events that tell of want of memory
        self._watch: _Watch | None = None

    def make(self) -> dict[str, str]:
        """Make the groups, and have every descriptor that watching them takes.  What failed, by axis."""
        lost = self._groups.make()
        try:
            self._short = self._groups.oom_watch()
        except OSError as error:
            lost["memory"] = f"a cgroup cannot be watched: {error.strerror}"
        return lost

    def admit(self, pid: int) -> dict[str, str]:
        """Put the paused program into them.  What failed, by axis."""
        return self._groups.add(pid)

    def watch(self, poller: Poller, due: Callable[[str], None]) -> None:
        """The program runs: call ``due`` with the reason when it is to be stopped."""
        self._watch = _Watch(self._groups, poller, due)
        if self._short is not None:
            self._watch.memory(*self._short)
        if self._cpu_seconds is not None:
            self._watch.cpu(self._cpu_seconds, self._cpus)

    def breach(self) -> str | None:
        """What the kernel's accounts say that the tree has exceeded up to now."""
        if self.oom_kills():
            return OUT_OF_MEMORY
        used = self._groups.cpu_seconds()
        return CPU_TIME if self._cpu_seconds is not None and (used or 0.0) >= self._cpu_seconds else None

    def oom_kills(self) -> int:
        """How many of the tree the kernel has killed for want of memory."""
        return self._groups.oom_kills()

    def kill(self) -> None:
        """End the tree at once, as far as the kernel can: see `RunCgroups.kill`."""
        self._groups.kill()

    def empty(self) -> bool:
        """Does the kernel agree that nothing is left?"""
        return self._groups.empty()

    def remove(self) -> None:
        """The tree is gone, or never was released.  Groups in which something lives stay."""
        if self._watch is not None:
            self._watch.end()
        if self._short is not None:
            os.close(self._short[0])
            self._short = None
        self._groups.remove()


class _Watch:
    """Calls ``due`` when memory or processor time is used up."""

    def __init__(self, groups: RunCgroups, poller: Poller, due: Callable[[str], None]) -> None:
        self._groups = groups
        self._poller = poller
        self._due = due
        self._fd = -1
        self._looks = 0

    def memory(self, fd: int, events: int) -> None:
        self._fd = fd
        self._poller.watch(fd, events, lambda _: self._memory_is_short())

    def cpu(self, limit: float, processors: float) -> None:
        """Look when it could be used up at the earliest, and again then: never in between."""
        used = self._groups.cpu_seconds()
        if used is None:
            return
        if used >= limit:
            self._due(CPU_TIME)
            return
        again = time.monotonic() + max((limit - used) / processors, _SOONEST)
        self._poller.at(CPU_TIME, again, lambda: self.cpu(limit, processors))

    def end(self) -> None:
        self._poller.forget(self._fd)
        for timer in (OUT_OF_MEMORY, CPU_TIME):
            self._poller.cancel(timer)

    def _memory_is_short(self) -> None:
        try:
            may_follow = self._groups.oom_heard(self._fd)
        except OSError:  # a program that could leave its group has removed it: it would be ready for ever
            self._poller.forget(self._fd)
            return
        self._looks = _OOM_LOOKS if may_follow else 0
        self._look_at_memory()

    def _look_at_memory(self) -> None:
        """The kernel may tell of the want before it has chosen and killed somebody."""
        if self._groups.oom_kills():
            self._due(OUT_OF_MEMORY)
        elif self._looks:
            self._looks -= 1
            self._poller.at(OUT_OF_MEMORY, time.monotonic() + _OOM_PAUSE, self._look_at_memory)


def _processors(share: object) -> float:
    """How many the tree can use at once."""
    processors = os.cpu_count() or 1
    return min(share, processors) if isinstance(share, int | float) else processors
