"""The last lines of a run's output, as tail(1) has them."""

from __future__ import annotations

from collections import deque

from durable_supervisor.model.events import Event


class LastLines:
    """Keeps the events that hold the last ``count`` lines, and no more in memory."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._events: deque[Event] = deque()
        self._newlines = 0

    def add(self, event: Event) -> None:
        self._events.append(event)
        self._newlines += event.data.count(b"\n")
        while len(self._events) > 1 and self._newlines - self._events[0].data.count(b"\n") > self._count:
            self._newlines -= self._events.popleft().data.count(b"\n")

    def events(self) -> list[Event]:
        """What was kept, its first event cut to where the last lines begin."""
        if self._count == 0:
            return []
        # An unfinished last line counts as a line of its own, as in tail(1).  A dropped range has no data.
        last = next((event.data for event in reversed(self._events) if event.data), b"\n")
        excess = self._newlines + (not last.endswith(b"\n")) - self._count
        kept: list[Event] = []
        for event in self._events:
            cut = 0
            while excess > 0 and (found := event.data.find(b"\n", cut)) >= 0:
                cut = found + 1
                excess -= 1
            if excess > 0 and event.data:
                continue  # the first of the last lines begins in a later event
            if not cut:
                kept.append(event)
            elif cut < len(event.data):
                detail = {**event.detail, "offset": (event.offset or 0) + cut}
                kept.append(
                    Event(event.seq, event.wall_ns, event.elapsed_ns, event.kind, detail, event.data[cut:])
                )
        return kept
