"""One answer to "what happened after seq N?"."""

from __future__ import annotations

from .events import Event, Kind


class Page:
    """``events`` in seq order; ask on with ``next_after``.

    ``head`` is the last seq there was; ``generation`` rises when a repair may have
    lost a tail that readers saw.  ``end``: the run's last word has been passed and
    all is delivered, so a follower may stop.
    """

    __slots__ = ("end", "events", "generation", "head", "next_after")

    def __init__(self, events: list[Event], next_after: int, head: int, generation: int, end: bool) -> None:
        self.events = events
        self.next_after = next_after
        self.head = head
        self.generation = generation
        self.end = end

    def __repr__(self) -> str:
        return f"Page({len(self.events)} events, next_after={self.next_after}, head={self.head})"


def is_wanted(event: Event, kinds: frozenset[str] | None, *, output: bool) -> bool:
    """Does a page show it?  ``kinds``: these alone; without ``output``, none of a program's output."""
    return (output or event.kind != Kind.OUTPUT) and (kinds is None or event.kind in kinds)
