"""One line of time for a run of several attempts."""

from __future__ import annotations

from ..model.events import Event


class Timebase:
    """Seconds since the run's first event, for events asked for in order.

    Monotonic within an attempt, so a wall clock that is set does not bend it.  Each
    attempt counts from zero again: its clock goes on where the one before stood.
    """

    def __init__(self) -> None:
        self._base_ns: int | None = None
        self._last_ns = 0

    def seconds(self, event: Event) -> float:
        if self._base_ns is None:
            self._base_ns = -event.elapsed_ns
        elif event.elapsed_ns < self._last_ns:
            self._base_ns += self._last_ns - event.elapsed_ns
        self._last_ns = event.elapsed_ns
        return (self._base_ns + event.elapsed_ns) / 1e9
