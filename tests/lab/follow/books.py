"""What each follower was told, and whether that is what the log says."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from durable_supervisor.model.events import TERMINAL_KINDS, Event, Kind
from tests.lab.model.actors import check_next, mark

# An owner's words on a run whose worker left none.  Who was told of the end by evidence, and waited in vain
# for an owner, goes without them.
OWNERS = TERMINAL_KINDS | {Kind.RUN_LOG_REPAIRED, Kind.RUN_QUARANTINED}


class Lag(NamedTuple):
    """How long after it was recorded an event was told to who waited for it."""

    seconds: float
    what: str
    told: float  # on the monotonic clock


@dataclass
class Book:
    """Of one follower of one run, however many readers it takes to come to the end."""

    run: str
    cursor: int = 0
    seen: list[list[Any]] = field(default_factory=list)
    ended: float = 0.0  # on the monotonic clock: when it was told that there is no more
    lags: list[Lag] = field(default_factory=list)

    def take(self, event: Event, since_ns: int, reader: str) -> None:
        """One event; ``since_ns``: since when its reader has followed.  Raises AssertionError for a gap."""
        now = time.time_ns()
        check_next(self.cursor, event)
        self.cursor = event.seq
        self.seen.append(mark(event))
        if event.wall_ns > since_ns:
            what = f"{reader}: {self.run} {event.seq} {event.kind}"
            self.lags.append(Lag((now - event.wall_ns) / 1e9, what, time.monotonic()))

    def judge(self, events: Sequence[Event], *, excused: bool) -> list[int]:
        """Raises AssertionError unless it was told each event once, in order, as it is, up to the last.

        Returns the seqs of an owner's words that it went without; only who is ``excused`` may.
        """
        kept = {event.seq: mark(event) for event in events}
        gaps = [event for event in events if event.kind == Kind.OUTPUT_DROPPED]
        for one in self.seen:
            dropped = any(int(str(gap.detail["first_seq"])) <= one[0] <= gap.seq for gap in gaps)
            assert dropped or kept.get(one[0]) == one, (self.run, one, kept.get(one[0]))
        missed = [event for event in events if event.seq > self.cursor]
        said = bool(self.seen) and self.seen[-1][1] in OWNERS
        allowed = said or (excused and all(event.kind in OWNERS for event in missed))
        assert not missed or allowed, (self.run, self.cursor, missed, self.seen[-1:])
        return [] if said else [event.seq for event in missed]
