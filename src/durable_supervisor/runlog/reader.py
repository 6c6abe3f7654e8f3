"""Pages of a run's events, by seq.

A reader holds no lock, keeps no file open between calls, and works with no
supervisor and no worker alive, or beside both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from durable_supervisor.model.errors import ErrorCode, Phase, SupervisorError
from durable_supervisor.model.events import TERMINAL_KINDS, Event, Kind
from durable_supervisor.model.page import Page, is_wanted

from .durable import settle_last_word
from .evidence import LogEvidence, read_evidence
from .paths import RunPaths
from .tail import Tail
from .walk import Walker

TYPE_CHECKING = False  # as in `typing`, which nothing here loads
if TYPE_CHECKING:
    from .nonblocking import NonblockingReader

MAX_PAGE_BYTES = 8 << 20


class LogReader:
    """Reads the log of one run.  Not for use by two threads at once.

    ``attempts`` is the newest attempt's number and may be raised later.  ``frozen`` as of `Walker`.
    ``directory_id``, when given, makes another directory's log "foreign".
    """

    __slots__ = ("_frozen", "_tail", "_walker", "attempts", "directory_id", "paths")

    def __init__(
        self, paths: RunPaths, attempts: int = 1, *, directory_id: str | None = None, frozen: bool = False
    ) -> None:
        self.paths = paths
        self.attempts = max(attempts, 1)
        self.directory_id = directory_id
        self._tail = Tail(paths, self.attempts, directory_id)
        self._frozen = frozen
        self._walker = Walker(paths, self.attempts, frozen=frozen)

    def page(
        self,
        after: int = 0,
        limit: int = 1000,
        *,
        kinds: frozenset[str] | None = None,
        output: bool = True,
        max_bytes: int = MAX_PAGE_BYTES,
        sure: bool = False,
    ) -> Page:
        """Up to ``limit`` events with ``seq > after``, and about ``max_bytes`` of their records.

        ``kinds`` and ``output=False`` (no `output` events) filter without renumbering:
        ``next_after`` moves over what is filtered.  Where records are lost, one
        ``output.dropped`` event with reason ``corrupt`` stands for them.  ``sure``: the run's last word
        is "not yet" until no power loss can take it back.

        Raises SupervisorError ``CURSOR_AHEAD`` when ``after`` is beyond the head.
        """
        head, generation, ended = self._head()
        if after > head:
            raise _cursor_ahead(after, head, generation)
        events: list[Event] = []
        next_after, size = after, 0
        if limit > 0:
            for event in self._walker.events(after):
                if sure and event.kind in TERMINAL_KINDS and not self._counts(event.seq):
                    head, ended = next_after, False
                    break
                next_after = event.seq
                if is_wanted(event, kinds, output=output):
                    events.append(event)
                    size += self._walker.weight
                    if len(events) >= limit or size >= max_bytes:
                        break
        return Page(events, next_after, max(head, next_after), generation, ended and next_after >= head)

    def let_stand(self, nonblocking: NonblockingReader, page: Page) -> None:
        """At the end of the ``page`` that was read last, if that is where the log ends."""
        place = self._walker.place
        if place is not None and place.seq == page.next_after == page.head and not page.end:
            nonblocking.stand(place, page.generation)

    def evidence(self, *, boot_id: str | None = None, deep: bool = False) -> LogEvidence:
        """The newest attempt's log as evidence; see `evidence.read_evidence`."""
        return read_evidence(
            self.paths, self.attempts, directory_id=self.directory_id, boot_id=boot_id, deep=deep
        )

    def is_ending(self) -> bool:
        """Has the newest attempt spoken a last word that does not count yet?"""
        self._head()
        return self._tail.facts.terminal is not None and not self._counts(self._tail.head)

    def raw(self, stream: str | None = None, tail: int | None = None) -> Iterator[bytes]:
        """The stored bytes of a stream (None: both as they came); ``tail``: only the last so many bytes."""
        pieces = self._pieces(stream)
        return pieces if tail is None else iter(_last_bytes(pieces, tail))

    def _pieces(self, stream: str | None) -> Iterator[bytes]:
        # A position of its own: the next page stays cheap.
        walker = Walker(self.paths, self.attempts, frozen=self._frozen)
        for event in walker.events(0):
            if event.kind == Kind.OUTPUT and stream in (None, event.stream):
                yield event.data

    def _counts(self, seq: int) -> bool:
        """Is a last word on the disk?  One of an earlier attempt is: another was made for it."""
        tail = self._tail
        if tail.header is not None and seq < tail.header.first_seq:
            return True
        if not tail.word_synced:
            tail.refresh()  # the walk may have come further than our last look
        if not tail.word_synced:
            tail.word_synced = settle_last_word(self.paths, tail.attempt)
        return tail.word_synced

    def _head(self) -> tuple[int, int, bool]:
        """Last seq, generation, and whether the newest attempt has spoken its last word."""
        if self._tail.attempt != self.attempts:
            self._tail = Tail(self.paths, self.attempts, self.directory_id)
            self._walker.attempts = self.attempts
        tail = self._tail
        tail.refresh()
        ended = tail.facts.terminal is not None
        while tail.header is None and not tail.has_records and tail.attempt > 1:
            # The new attempt's log is not there (yet): the old one's head is the head.
            tail = Tail(self.paths, tail.attempt - 1, self.directory_id)
            tail.refresh()
        return tail.head, tail.generation, ended


def _last_bytes(pieces: Iterator[bytes], count: int) -> list[bytes]:
    kept: deque[bytes] = deque()
    size = 0
    for piece in pieces:
        kept.append(piece)
        size += len(piece)
        while kept and size - len(kept[0]) >= count:
            size -= len(kept.popleft())
    if kept and size > count:
        kept[0] = kept[0][size - count :]
    return list(kept)


def _cursor_ahead(after: int, head: int, generation: int) -> SupervisorError:
    return SupervisorError(
        ErrorCode.CURSOR_AHEAD,
        f"the cursor {after} is beyond the last event {head}",
        phase=Phase.READ,
        hint=f"ask again with a cursor of at most {head}; if the run gave it, a crash took what was there",
        details={"after": after, "head": head, "generation": generation},
    )
