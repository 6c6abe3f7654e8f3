"""What a run's tree may use, held by the kernel in groups of its own and watched from here.

Imported only for a run with a plan that has groups.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from ..sandbox.plan import Plan
from ..sandbox.run_cgroups import RunCgroups
from .poller import Poller

OUT_OF_MEMORY, CPU_TIME = "out_of_memory", "cpu_time"  # reasons of a stop
_SOONEST = 0.005  # seconds to the next look at the processor time
_OOM_LOOK = 0.01
_OOM_LOOKS = 100


class Resources:
    """From the making of the groups, before the fork, to their removal, when the tree is gone."""

    def __init__(self, plan: Plan, name: str) -> None:
        limits = plan.cgroups or {}
        self._groups = RunCgroups(limits, name)
        self._cpu_seconds = plan.cpu_seconds
        share = limits.get("cpus")
        processors = os.cpu_count() or 1
        # How fast the tree can use processor time up: nobody has to look before it could have.
        self._cpus = min(share, processors) if isinstance(share, int | float) else processors
        self._watch: tuple[int, int] | None = None
        self._looks = 0

    def make(self) -> dict[str, str]:
        """Make the groups, and have every descriptor that watching them takes.  What failed, by axis."""
        lost = self._groups.make()
        try:
            self._watch = self._groups.oom_watch()
        except OSError as error:
            lost["memory"] = f"a cgroup cannot be watched: {error.strerror}"
        return lost

    def admit(self, pid: int) -> dict[str, str]:
        """Put the paused program into them.  What failed, by axis."""
        return self._groups.add(pid)

    def watch(self, poller: Poller, due: Callable[[str], None]) -> None:
        """The program runs: call ``due`` with the reason when it is to be stopped."""
        if self._watch is not None:
            fd, events = self._watch
            poller.watch(fd, events, lambda _: self._memory_is_short(fd, poller, due))
        if self._cpu_seconds is not None:
            self._look_at_cpu(poller, due)

    def breach(self) -> str | None:
        """What the kernel's accounts say that the tree has exceeded up to now."""
        if self.oom_kills():
            return OUT_OF_MEMORY
        used = self._groups.cpu_seconds()
        return CPU_TIME if self._cpu_seconds is not None and (used or 0.0) >= self._cpu_seconds else None

    def oom_kills(self) -> int:
        return self._groups.oom_kills()

    def kill(self) -> None:
        """End the tree at once, as far as the kernel can: see `RunCgroups.kill`."""
        self._groups.kill()

    def empty(self) -> bool:
        """Does the kernel agree that nothing is left?"""
        return self._groups.empty()

    def remove(self, poller: Poller) -> None:
        """The tree is gone, or never was released.  Groups in which something lives stay."""
        if self._watch is not None:
            poller.forget(self._watch[0])
            os.close(self._watch[0])
            self._watch = None
        for timer in (OUT_OF_MEMORY, CPU_TIME):
            poller.cancel(timer)
        self._groups.remove()

    def _memory_is_short(self, fd: int, poller: Poller, due: Callable[[str], None]) -> None:
        self._groups.oom_heard(fd)
        self._looks = 0
        self._look_at_memory(poller, due)

    def _look_at_memory(self, poller: Poller, due: Callable[[str], None]) -> None:
        """The kernel tells of the shortage before it has chosen and killed somebody."""
        if self.oom_kills():
            due(OUT_OF_MEMORY)
        elif self._looks < _OOM_LOOKS:
            self._looks += 1
            poller.at(OUT_OF_MEMORY, time.monotonic() + _OOM_LOOK, lambda: self._look_at_memory(poller, due))

    def _look_at_cpu(self, poller: Poller, due: Callable[[str], None]) -> None:
        used = self._groups.cpu_seconds()
        if self._cpu_seconds is None or used is None:
            return
        left = self._cpu_seconds - used
        if left <= 0:
            due(CPU_TIME)
        else:
            again = time.monotonic() + max(left / self._cpus, _SOONEST)
            poller.at(CPU_TIME, again, lambda: self._look_at_cpu(poller, due))
