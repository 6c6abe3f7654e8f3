"""Clocks, and the id of this boot."""

from __future__ import annotations

import time

_BOOT_ID_PATH = "/proc/sys/kernel/random/boot_id"
_boot_id = ""


def boot_id() -> str:
    """The kernel's id of this boot (random(4)); it cannot change while a process lives."""
    global _boot_id
    if not _boot_id:
        with open(_BOOT_ID_PATH, encoding="ascii") as file:
            _boot_id = file.read().strip()
    return _boot_id


class Clock:
    """Wall time for people, monotonic time for order and durations.

    ``elapsed_ns`` counts from this object's creation on CLOCK_MONOTONIC, which
    stands still while the machine is suspended; ``boottime`` (seconds) does not.
    """

    def __init__(self) -> None:
        self._origin = time.monotonic_ns()

    wall_ns = staticmethod(time.time_ns)
    """Unix nanoseconds, UTC."""

    def elapsed_ns(self) -> int:
        """Nanoseconds since this clock was made."""
        return time.monotonic_ns() - self._origin

    def monotonic(self) -> float:
        """Seconds on CLOCK_MONOTONIC."""
        return time.monotonic()
