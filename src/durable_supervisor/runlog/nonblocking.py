"""What a live log has just gained, for who must not wait: the event loop of a guest.

What its worker wrote a moment ago is in the page cache, and to read it takes less than to wake a thread
for it.  Three things make sure that it never waits:

- RWF_NOWAIT (preadv2(2)): what is not in the page cache is EAGAIN, even if some kernels begin to fetch it;
- O_NOATIME (open(2)): a file that was written since it was last read has its access time noted otherwise,
  which may wait for the file system's own journal;
- opening and closing are a thread's work, and whoever looks takes the lock at once or not at all.

It answers what is plain: some whole records, one seq after the other, of the segment it is open at.  All
else (a new segment, damage, the last word, much at once) is left to a `LogReader`, in a thread.
"""

from __future__ import annotations

import os
from copy import deepcopy
from threading import Lock

from durable_supervisor.model.events import TERMINAL_KINDS, Event, Kind
from durable_supervisor.model.page import Page, is_wanted

from .files import READ_FLAGS, NotRegularError, open_regular
from .format import SYNC, salt_of
from .paths import RunPaths
from .scan import record_in
from .walk import Position

_MOST_BYTES = 16 * 1024  # with their decoding a fraction of a millisecond
_MOST_EVENTS = 32
_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)  # Linux alone has them
_NOATIME: int = getattr(os, "O_NOATIME", 0)


class NonblockingReader:
    """One for all followers of a run in this process: they are told of the same events at the same time.

    Threads let it `stand` where a page has ended, and `close` it; the loop asks for the `page` behind that.
    """

    __slots__ = ("_fd", "_generation", "_last", "_lock", "_paths", "_refused", "_room", "_salt", "_standing")

    def __init__(self, paths: RunPaths) -> None:
        self._paths = paths
        self._lock = Lock()
        self._fd = -1
        self._salt = 0
        self._room = bytearray()
        self._standing: Position | None = None  # None: nowhere
        self._generation = 0
        self._last: tuple[int, list[Event]] = (0, [])  # what was read last, and behind which seq
        self._refused = not (_NOWAIT and _NOATIME)

    def stand(self, place: Position, generation: int) -> None:
        """Look on from ``place``, the log's end of a moment ago, unless it stands further on.  May wait."""
        with self._lock:
            here = self._standing
            if self._refused or (here is not None and place.seq < here.seq):
                return
            if here is None or (here.attempt, here.key) != (place.attempt, place.key):
                self._open(place)
            if self._fd >= 0:
                self._standing, self._generation = place, generation

    def page(
        self, after: int, head: int, limit: int, *, kinds: frozenset[str] | None, output: bool
    ) -> Page | None:
        """As `LogReader.page`, with all events up to ``head``, that the worker has told of; never waits.

        None where that would take more than it does: it says nothing about what the log holds.
        """
        if not self._lock.acquire(blocking=False):  # a thread is at it
            return None
        try:
            events = self._events(after, head)
        finally:
            self._lock.release()
        if not events or len(events) > limit:
            return None
        last = events[-1].seq
        wanted = [_own(event) for event in events if is_wanted(event, kinds, output=output)]
        return Page(wanted, last, last, self._generation, end=False)

    def close(self) -> None:
        """For good.  May wait: for a file whose name is gone, its end comes with its last descriptor's."""
        with self._lock:
            self._refused = True
            self._let_go()

    def _open(self, place: Position) -> None:
        self._let_go()
        try:
            path = self._paths.segment_file(place.attempt, place.key)
            self._fd, _ = open_regular(path, READ_FLAGS | _NOATIME)
        except (NotRegularError, OSError) as problem:
            # Compacted meanwhile, or no descriptor left: the next time, perhaps.  EPERM: not our file.
            self._refused = isinstance(problem, PermissionError)
            return
        self._room = self._room or bytearray(_MOST_BYTES)  # once: to clear it takes longer than to read
        self._salt = salt_of(self._paths.run_id, place.attempt, place.key[0])

    def _let_go(self) -> None:
        fd, self._fd, self._standing = self._fd, -1, None
        if fd >= 0:
            os.close(fd)

    def _events(self, after: int, head: int) -> list[Event]:
        """Those behind ``after``, up to ``head`` at least; none where they are not all at hand."""
        since, events = self._last
        if since != after or not events:
            here = self._standing
            if here is None or here.seq != after or head - after > _MOST_EVENTS:
                return []
            events = self._read_on(here)
            self._last = (after, events)
        return events if events and events[-1].seq >= head else []

    def _read_on(self, here: Position) -> list[Event]:
        events: list[Event] = []
        data, begin = self._bytes(here.offset), here.offset
        while here.offset - begin < len(data) and len(events) < _MOST_EVENTS:
            record = record_in(data, here.offset - begin, self._salt, here.offset)
            if record is None:
                break
            if record.rtype != SYNC:
                if record.first_seq != here.seq + 1 or record.kind in TERMINAL_KINDS:
                    break
                here.seq = record.seq
                events.append(record.event())
            here.offset = record.end
        return events

    def _bytes(self, offset: int) -> bytes:
        try:
            count = os.preadv(self._fd, [self._room], offset, _NOWAIT)
        except OSError as problem:
            # EAGAIN: not in the page cache.  Anything else: not on this file system, or not with this kernel.
            self._refused = self._refused or not isinstance(problem, BlockingIOError)
            return b""
        return bytes(memoryview(self._room)[:count])


def _own(event: Event) -> Event:
    """A copy for one follower: what it does to its events must not change what the others are told."""
    detail = dict(event.detail) if event.kind == Kind.OUTPUT else deepcopy(event.detail)
    return Event(event.seq, event.wall_ns, event.elapsed_ns, event.kind, detail, event.data)
