"""How far a reader has come, told to a program that is held back until then."""

from __future__ import annotations

from ..model.events import Event, Kind
from ..runlog.drops import dropped_sizes


class Taken:
    """What a reader has taken of a run with a ``window``; None: nobody waits to hear of it."""

    def __init__(self, window: int | None) -> None:
        self._window = window
        self._taken = {"stdout": 0, "stderr": 0}
        self._told = dict(self._taken)

    def due(self, event: Event) -> dict[str, int] | None:
        """With this event done with: what to `acknowledge`, once that is a quarter of the window."""
        if self._window is None:
            return None
        if event.kind == Kind.OUTPUT:
            self._taken[event.stream or "stdout"] = (event.offset or 0) + len(event.data)
        elif event.kind == Kind.OUTPUT_DROPPED:
            for name, size in zip(self._taken, dropped_sizes(event.detail), strict=True):
                self._taken[name] += size
        if all(self._taken[name] - self._told[name] < self._window // 4 for name in self._taken):
            return None
        return dict(self._taken)

    def told(self, counts: dict[str, int]) -> None:
        """It was acknowledged; what could not be is due again with the next event."""
        self._told = counts
