"""The reading side: journal rows overlaid with what the run logs say now.  Blocking, no ownership."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ...journal import feed as journal_feed
from ...journal import listing, meta, runs
from ...journal.reader import JournalReader
from ...journal.rows import RunRow
from ...model.answers import FeedEntry, ListPage
from ...model.arguments import label_of, page_limit, position, states_of
from ...model.errors import ErrorCode, Phase, SupervisorError, invalid, run_collected
from ...model.ids import RUN_ID_LENGTH
from ...model.page import Page
from ...model.states import JUDGED_STATES, OPEN_STATES, RunState
from ...model.view import RunView
from ...process.clock import boot_id
from ...reconcile.observe import PATIENCE, Place
from ...reconcile.view import view
from ...runlog.paths import RunPaths, find_run
from ...runlog.reader import LogReader
from ..imports.imported import Chosen, Imports, is_imported, paths_of
from ..state.state_dir import StateDir, owner_pid
from .live import with_live_figures

if TYPE_CHECKING:
    from ...bundle.snapshot import Snapshot
    from ...journal.history import History
    from ...runlog.nonblocking import NonblockingReader

T = TypeVar("T")

_CACHED_READERS = 64
_PAUSE = 0.002


class Reading:
    """Answers from one state directory.  Usable from several threads.

    Without a journal (lost, not yet made) the rows are rebuilt from the log
    headers in memory: reading works, slowly, and nothing is written.
    """

    def __init__(self, place: StateDir) -> None:
        self._place = place
        self._journal: JournalReader | None = None
        self._rebuilt = False
        self._from_logs: set[str] = set()  # runs that the journal does not know
        self._named: tuple[JournalReader, str | None] | None = None
        self._lock = threading.Lock()
        self._imports = Imports(place.imported)
        self._readers: OrderedDict[tuple[str, str, int], tuple[LogReader, threading.Lock]] = OrderedDict()

    def close(self) -> None:
        """Idempotent."""
        with self._lock:
            if self._journal is not None:
                self._journal.close()
                self._journal = None

    def row(self, run: str, owner: str | None = None) -> RunRow:
        """The run of this id or unique prefix; with ``owner``, another's does not exist.

        An imported one has no owner here: its owner's name is a word of another directory.

        Raises ``UNKNOWN_RUN``, or ``AMBIGUOUS_RUN`` naming the candidates.
        """
        found = self._find(run, owner)
        if found is None or owner not in (None, found.owner):
            raise runs.unknown_run(run)
        return found

    def _find(self, run: str, owner: str | None) -> RunRow | None:
        if not isinstance(run, str):
            raise invalid("run", "must be a run id, or the beginning of one", "run.id of what start answered")
        run = run.lower()
        found = self._read(lambda conn: runs.get(conn, run)) if len(run) == RUN_ID_LENGTH else None
        if found is not None:
            return found
        candidates = self._read(lambda conn: runs.by_prefix(conn, run, owner=owner)) if run else []
        homes = self._imports.find(run) if run and owner is None else []
        if len(candidates) + len(homes) > 1:
            raise _ambiguous(run, sorted([*candidates, *(home.run_id for home in homes)]))
        if homes:
            return self._imports.row(homes[0])
        found = self._read(lambda conn: runs.get(conn, candidates[0])) if candidates else None
        if found is None and len(run) == RUN_ID_LENGTH and run.isalnum():
            found = self._row_from_log(run)
        return found

    def inspect(self, run: str, *, live: bool = False) -> RunView:
        """The run as it is now; ``live`` adds figures of its running tree, and its log's health."""
        row = self.row(run)
        if is_imported(row):
            return row.view
        seen = view(row, self.evidence_place(row), check_log=live)
        if not row.collected and not self._log_is_there(row):  # collected since its row was read?
            row = self.row(run)
            seen = view(row, self.evidence_place(row), check_log=live)
        if live and seen.state in OPEN_STATES:
            return with_live_figures(seen, self.paths(row).log(row.attempt))
        return seen

    def list(
        self,
        *,
        limit: int,
        before: int | None,
        states: Collection[RunState] | None,
        label: tuple[str, str] | None,
        owner: str | None = None,
        collected: bool = False,
    ) -> ListPage:
        """One page, newest first.  Each run is shown, and chosen by ``states``, as it is now."""
        limit = page_limit(limit)
        before = None if before is None else position("before", before)
        wanted, label = states_of(states), label_of(label)
        query = partial(listing.list_runs, limit=limit + 1, label=label, owner=owner, collected=collected)
        views = self._views(query, limit + 1, before, wanted)
        if owner is None:
            imported = self._imports.newest(before, limit + 1, Chosen(wanted, label))
            views = sorted([*views, *imported], key=lambda seen: seen.serial, reverse=True)
        return ListPage(views[:limit], views[limit - 1].serial if len(views) > limit else None)

    def _views(
        self,
        query: Callable[..., Sequence[RunRow]],
        limit: int,
        before: int | None,
        wanted: frozenset[RunState] | None,
    ) -> Sequence[RunView]:
        """The first ``limit`` that fit.  One that has ended may be open in the journal for a moment yet,
        so whatever can change is looked at, too.
        """
        if wanted is not None and not wanted:
            return []
        asked = None if wanted is None else wanted | JUDGED_STATES
        place = self.evidence_place()
        found: Sequence[RunView] = []
        while True:
            rows = self._read(partial(query, before_serial=before, states=asked))
            shown = (view(row, place) for row in rows)
            found = [*found, *(seen for seen in shown if wanted is None or seen.state in wanted)]
            if len(rows) < limit or len(found) >= limit:
                return found[:limit]
            before = rows[-1].serial

    def page(self, row: RunRow, after: int, limit: int, kinds: frozenset[str] | None, output: bool) -> Page:
        """One page of a run's events.  Raises ``RUN_COLLECTED``, also where that happens meanwhile."""
        reader, lock = self._reader(row)
        try:
            with lock:
                # What the journal has settled no power loss takes back: old logs have no marks of it.
                sure = row.state in JUDGED_STATES
                return reader.page(
                    position("after", after), page_limit(limit), kinds=kinds, output=output, sure=sure
                )
        finally:
            self.check_kept(row)

    def page_to_follow(
        self,
        row: RunRow,
        after: int,
        limit: int,
        kinds: frozenset[str] | None,
        output: bool,
        nonblocking: NonblockingReader,
    ) -> Page:
        """As `page`; where that comes to the end of the log so far, ``nonblocking`` looks on from there."""
        page = self.page(row, after, limit, kinds, output)
        reader, lock = self._reader(row)
        with lock:
            reader.let_stand(nonblocking, page)
        return page

    def check_kept(self, row: RunRow) -> None:
        """Raises ``RUN_COLLECTED`` if the log that was just read may have been going meanwhile.

        Its first segment goes first, and after the journal says so: while that is there, all is.
        """
        if not row.collected and self._log_is_there(row):
            return
        if is_imported(row):
            self._imports.row(row.home)  # raises where it is gone as a whole
            return
        now = self._read(lambda conn: runs.get(conn, row.run_id))
        if now is not None and now.collected:
            raise run_collected(now.run_id, now.state.value, now.outcome)

    def _log_is_there(self, row: RunRow) -> bool:
        return os.path.lexists(self.paths(row).log(row.attempt))

    def snapshot(self, row: RunRow) -> Snapshot:
        """The run's files, held open.  Close it.  Raises ``RUN_COLLECTED``, ``BUSY``."""
        from ...bundle.snapshot import Snapshot  # for an audit or an export alone

        log = Snapshot(self.paths(row), row.attempt)
        try:
            self.check_kept(row)
            if row.state in JUDGED_STATES:
                self._until_ended(row)
        except BaseException:
            log.close()
            raise
        return log

    def _until_ended(self, row: RunRow) -> None:
        """Files with a last word that is just being brought to the disk are not given away before."""
        reader, lock = self._reader(row)
        deadline = time.monotonic() + PATIENCE
        with lock:
            while reader.is_ending():
                if time.monotonic() >= deadline:
                    raise _is_ending(row.run_id)
                time.sleep(_PAUSE)

    def feed(self, after: int, limit: int, owner: str | None = None) -> Sequence[FeedEntry]:
        """Changes of state of all runs after a position."""
        after, limit = position("after", after), page_limit(limit)
        return self._read(lambda conn: journal_feed.feed(conn, after, limit, owner))

    def history(self, row: RunRow) -> History:
        """Everything that the journal holds about one run."""
        from ...journal import history  # for a bundle alone

        if is_imported(row):
            from ..imports import files as imported_files

            return imported_files.history(row)
        return self._read(lambda conn: history.of_run(conn, row))

    def owned(self) -> bool:
        """Is somebody there who writes down what the evidence shows?  As its name in the directory says."""
        return owner_pid(self._place) is not None

    def paths(self, row: RunRow) -> RunPaths:
        return paths_of(row, self._place.runs)

    def evidence_place(self, row: RunRow | None = None) -> Place:
        """Where the reconciler's readers look.  A row that came from the logs cannot be foreign to them."""
        known = None if row is not None and row.run_id in self._from_logs else self._directory_id()
        return Place(self._place.runs, known or "", boot_id())

    def _directory_id(self) -> str | None:
        with self._lock:  # as in `_read`
            journal = self._open()
            if self._named is None or self._named[0] is not journal:
                self._named = (journal, journal.read(meta.directory_id))
            return self._named[1]

    def _reader(self, row: RunRow) -> tuple[LogReader, threading.Lock]:
        """A reader that remembers where the last page ended, so that the next costs only itself."""
        paths = self.paths(row)
        key = (paths.dir, row.run_id, row.attempt)
        with self._lock:
            if key in self._readers:
                self._readers.move_to_end(key)
            else:
                reader = LogReader(paths, row.attempt, frozen=is_imported(row))
                self._readers[key] = (reader, threading.Lock())
                if len(self._readers) > _CACHED_READERS:
                    self._readers.popitem(last=False)
            return self._readers[key]

    def _read(self, work: Callable[..., T]) -> T:
        # Under the lock as a whole: another thread may find the journal exchanged, and close this one.
        with self._lock:
            return self._open().read(work)

    def _open(self) -> JournalReader:
        if self._journal is not None and self._outdated(self._journal):
            self._journal.close()
            self._journal = None
        if self._journal is None:
            try:
                self._journal, self._rebuilt = JournalReader.open(self._place.journal), False
            except SupervisorError as error:
                if error.code is not ErrorCode.JOURNAL_MISSING:
                    raise
                self._journal, self._rebuilt = self._from_the_logs(), True
        return self._journal

    def _from_the_logs(self) -> JournalReader:
        from ..opening import (
            rebuild,  # hardly ever needed, and a command line would pay for its loading every time
        )

        return rebuild.in_memory(self._place.runs)

    def _outdated(self, journal: JournalReader) -> bool:
        """Exchanged for another, or made since its rows had to be rebuilt."""
        if not self._rebuilt:
            return journal.replaced()
        try:
            return os.lstat(self._place.journal).st_size > 0
        except OSError:
            return False

    def _row_from_log(self, run_id: str) -> RunRow | None:
        """A run that the journal has lost (it is older than its logs): its log still tells."""
        if self._rebuilt or find_run(self._place.runs, run_id) is None:
            return None
        with self._from_the_logs() as journal:
            row = journal.read(lambda conn: runs.get(conn, run_id))
        if row is not None:
            self._from_logs.add(run_id)
        return row


def _is_ending(run_id: str) -> SupervisorError:
    return SupervisorError(
        ErrorCode.BUSY,
        f"run {run_id} is ending: its last word is not on the disk yet",
        phase=Phase.READ,
        retryable=True,
        hint="try again in a moment",
        details={"run_id": run_id},
    )


def _ambiguous(prefix: str, candidates: list[str]) -> SupervisorError:
    return SupervisorError(
        ErrorCode.AMBIGUOUS_RUN,
        f"{prefix!r} is the beginning of more than one run id: {', '.join(candidates)}",
        phase=Phase.READ,
        hint="give more characters of the id",
        details={"candidates": candidates},
    )
