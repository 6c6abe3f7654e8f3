"""The bounds in time that a worker holds its program to."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from ..process import libc
from .poller import READ, Poller


class Deadlines:
    """Calls ``due("timeout")`` or ``due("idle_timeout")``, each at most once.

    The wall deadline runs on CLOCK_BOOTTIME, which goes on while the machine
    sleeps; the idle timer on CLOCK_MONOTONIC, which does not: a suspended
    laptop is not a silent program.
    """

    def __init__(self, poller: Poller, last_output: Callable[[], float], due: Callable[[str], None]) -> None:
        self._poller = poller
        self._last_output = last_output
        self._due = due
        self._timer = -1

    def prepare(self, timeout: float | None) -> None:
        """Have what `arm` needs; raises OSError while the program can still be refused."""
        if timeout is not None:
            self._timer = libc.boottime_timer()

    def arm(self, timeout: float | None, idle_timeout: float | None) -> None:
        """Start both clocks now; None means unbounded."""
        if timeout is not None:
            timer = self._timer
            libc.arm_timer(timer, timeout)
            self._poller.watch(timer, READ, lambda _: self._wall(timer))
        if idle_timeout is not None:
            self._idle_from = time.monotonic()
            self._idle_timeout = idle_timeout
            self._idle()

    def close(self) -> None:
        """Neither is due any more."""
        if self._timer >= 0:
            os.close(self._timer)
            self._timer = -1

    def _wall(self, timer: int) -> None:
        self._poller.forget(timer)
        self.close()
        self._due("timeout")

    def _idle(self) -> None:
        due = max(self._idle_from, self._last_output()) + self._idle_timeout
        if time.monotonic() < due:
            self._poller.at("idle", due, self._idle)
        else:
            self._due("idle_timeout")
