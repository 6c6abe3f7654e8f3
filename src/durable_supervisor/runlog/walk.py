"""Walk a run's events in seq order, over attempts and segments, while the log is being written.

Names are write-once (see `paths`), so a remembered offset stays good; a segment
that a compaction took away is looked up anew by the next seq.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Generator, Iterator

from durable_supervisor.model.events import Event, Kind
from durable_supervisor.process.shortage import is_shortage

from .files import NotRegularError, list_segments, open_regular
from .format import SYNC, salt_of
from .paths import FIRST, RunPaths, SegmentKey
from .scan import Damage, Record, Scanner

_MAX_MISSES = 100


class Position:
    """Right behind ``seq``: the segment, and the offset of what follows."""

    __slots__ = ("attempt", "key", "offset", "seq")

    def __init__(self, attempt: int, key: SegmentKey, offset: int, seq: int) -> None:
        self.attempt = attempt
        self.key = key
        self.offset = offset
        self.seq = seq


_Steps = Generator[Event, None, Position | None]


class Walker:
    """Remembers where the last walk stopped, so that going on costs nothing.

    ``weight``: how many bytes the record of the event just given has, its detail as well as its data.
    ``frozen``: nobody writes this log any more, so its segments are listed once.  A stranger's bundle
    may hold 100,000 of them.
    """

    __slots__ = ("_at", "_first_seqs", "_listed", "_tried", "attempts", "paths", "weight")

    def __init__(self, paths: RunPaths, attempts: int, *, frozen: bool = False) -> None:
        self.paths = paths
        self.attempts = attempts
        self.weight = 0
        self._at: Position | None = None
        self._first_seqs: dict[int, int] = {1: 1}
        self._tried: set[tuple[int, SegmentKey]] = set()  # walked since the last event
        self._listed: dict[int, list[SegmentKey]] | None = {} if frozen else None

    @property
    def place(self) -> Position | None:
        """Where the last walk has stopped; None before the first."""
        here = self._at
        return None if here is None else Position(here.attempt, here.key, here.offset, here.seq)

    def events(self, after: int) -> Iterator[Event]:
        """Every event with a seq above ``after``, each seq answered once, as far as the log goes now.

        A range of seqs without a good record is one `output.dropped` event, reason ``corrupt``.
        Raises OSError when we ourselves are short of something: nothing is lost for that.  Walk on later.
        """
        here = self._at
        if here is None or here.seq != after:
            here = self._locate(after)
        misses = 0
        while True:
            self._at = here
            try:
                beyond = yield from self._segment(here)
            except FileNotFoundError:
                misses += 1
                gone = here.key == FIRST or misses > _MAX_MISSES
                beyond = self._following(here) if gone else self._locate(here.seq)
            except (NotRegularError, OSError) as problem:
                if is_shortage(problem):
                    raise
                beyond = self._following(here)
            if beyond is None:
                return
            here = beyond

    def _segment(self, position: Position) -> _Steps:
        self._tried.add((position.attempt, position.key))
        fd, size = open_regular(self.paths.segment_file(position.attempt, position.key))
        try:
            salt = salt_of(self.paths.run_id, position.attempt, position.key[0])
            scanner = Scanner(fd, salt, position.offset, size)
            if position.offset == 0:
                scanner.header()
            following = None
            while True:
                item = scanner.step()
                if isinstance(item, Record):
                    elsewhere = yield from self._record(position, item)
                    if elsewhere is not None:
                        return elsewhere
                elif isinstance(item, Damage) and not item.at_tail:
                    position.offset = scanner.offset
                elif following is not None:
                    following.seq = position.seq  # it may have grown since
                    return following
                else:
                    following = self._following(position)
                    if following is None:
                        return None  # the live tail
                    # It has a successor, so it is complete now; it may not have been when we read it.
                    scanner.refresh()
        finally:
            os.close(fd)

    def _record(self, position: Position, record: Record) -> _Steps:
        """Yield what the record stands for; return another position if the records before it are there."""
        wanted = position.seq + 1
        if record.rtype == SYNC or record.seq < wanted:
            position.offset = record.end
            return None
        if record.first_seq > wanted:
            elsewhere = self._covering(position, wanted)
            if elsewhere is not None:
                return elsewhere
            position.offset, position.seq = record.offset, record.first_seq - 1
            self.weight = 0
            yield _lost(record, wanted)
        event = record.event()
        if record.first_seq < wanted:  # the cursor stands inside the dropped range
            event.detail = {**event.detail, "first_seq": wanted}
        position.offset, position.seq = record.end, record.seq
        self._tried.clear()
        self.weight = record.end - record.offset
        yield event
        return None

    def _covering(self, position: Position, seq: int) -> Position | None:
        """Before calling a seq lost: another segment that may hold it.

        A directory listing is no snapshot: beside a compaction it can show neither the
        old segments nor the new one.
        """
        for key in reversed(self._segments(position.attempt)):
            if key[0] <= seq:
                if (position.attempt, key) in self._tried or 0 < key[1] < seq:
                    return None
                return Position(position.attempt, key, 0, position.seq)
        return None

    def _following(self, position: Position) -> Position | None:
        """The beginning of the next segment, or of the next attempt's log."""
        keys = self._segments(position.attempt)
        index = bisect_right(keys, position.key[0], key=_begins)
        if index < len(keys):
            return Position(position.attempt, keys[index], 0, position.seq)
        if position.attempt < self.attempts:
            return Position(position.attempt + 1, FIRST, 0, position.seq)
        return None

    def _locate(self, after: int) -> Position:
        """Where to look for the seq behind ``after``."""
        self._tried.clear()
        for attempt in range(self.attempts, 0, -1):
            for key in reversed(self._segments(attempt)):
                first = self._first_seq(attempt) if key == FIRST else key[0]
                if first is not None and first <= after + 1:
                    return Position(attempt, key, self._near(attempt, key, after), after)
        return Position(1, FIRST, 0, after)

    def _segments(self, attempt: int) -> list[SegmentKey]:
        if self._listed is None:
            return _segments(self.paths, attempt)
        if attempt not in self._listed:
            self._listed[attempt] = _segments(self.paths, attempt)
        return self._listed[attempt]

    def _near(self, attempt: int, key: SegmentKey, seq: int) -> int:
        """An offset not behind ``seq`` in this segment; 0 where there is nothing to gain."""
        if seq < key[0]:
            return 0
        try:
            fd, size = open_regular(self.paths.segment_file(attempt, key))
        except (NotRegularError, OSError):
            return 0
        try:
            scanner = Scanner(fd, salt_of(self.paths.run_id, attempt, key[0]), 0, size)
            if scanner.header() is None:
                return 0
            scanner.approach(seq)
            return scanner.offset
        finally:
            os.close(fd)

    def _first_seq(self, attempt: int) -> int | None:
        """The seq an attempt's log begins with: from its header, or else from its first record."""
        known = self._first_seqs.get(attempt)
        if known is not None:
            return known
        try:
            fd, size = open_regular(self.paths.log(attempt))
        except (NotRegularError, OSError) as problem:
            if is_shortage(problem):
                raise
            return None
        try:
            scanner = Scanner(fd, salt_of(self.paths.run_id, attempt, 0), 0, size)
            header = scanner.header()
            if header is not None:
                self._first_seqs[attempt] = header.first_seq
                return header.first_seq
            while (item := scanner.step()) is not None:
                if isinstance(item, Record):
                    return item.first_seq
                if item.at_tail:
                    break
            return None
        finally:
            os.close(fd)


def _begins(key: SegmentKey) -> int:
    return key[0]


def _segments(paths: RunPaths, attempt: int) -> list[SegmentKey]:
    """The segments that can be read: where the system does not let us list the others, the first."""
    try:
        return list_segments(paths, attempt)
    except OSError as problem:
        if is_shortage(problem):
            raise
        return [FIRST]


def _lost(record: Record, first: int) -> Event:
    """Stands for the seqs from ``first`` up to the record's; its times are the record's."""
    detail: dict[str, object] = {"first_seq": first, "reason": "corrupt"}
    return Event(record.first_seq - 1, record.wall_ns, record.elapsed_ns, Kind.OUTPUT_DROPPED, detail)
