"""One look at some runs: observe, decide, act.

It waits for the journal and for ``blocking``, and for nothing else: so it serves a reconciler, which has an
event loop, as well as an owner that has none.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ..journal.listing import judged_runs
from ..journal.rows import RunRow
from ..journal.runs import get, unknown_run
from ..process.failpoints import failpoint
from .act import Judged, Spoken, clear_away, fold, is_news, owes_word, speak
from .decide import decide
from .observe import PATIENCE, Place, in_passing, look

if TYPE_CHECKING:
    from ..journal.access import JournalAccess
    from ..process.clock import Clock
    from .facts import Observation

Fold = Callable[[Sequence[Judged]], Awaitable[list[RunRow]]]

PAGE = 1000
# A word in a log costs disk syncs, some 10 to 30 ms.  Where more runs than these settle at
# once (a power cut, every worker killed) the journal, which is the authority, says it alone.
WORDS_AT_ONCE = 16
_ROUNDS = 3


class PassReport:
    """What a pass did: how many runs were judged, and the rows it changed (as they are now)."""

    __slots__ = ("changed", "judged")

    def __init__(self) -> None:
        self.judged = 0
        self.changed: list[RunRow] = []


class Judge:
    """Of one journal's runs.

    ``blocking`` runs file work, in a thread where there is a loop to keep free.  There ``not_seen`` is told
    of a run that could not even be looked at: it stays as it is.
    """

    def __init__(
        self,
        journal: JournalAccess,
        place: Place,
        clock: Clock,
        blocking: Callable[[Callable[[], Any]], Awaitable[Any]],
        not_seen: Callable[[str, Exception], object],
    ) -> None:
        self._journal = journal
        self._place = place
        self._clock = clock
        self._blocking = blocking
        self._not_seen = not_seen

    async def all_open(self, fold: Fold | None = None) -> PassReport:
        """Every open and quarantined run."""
        report, after = PassReport(), 0
        while True:
            rows = await self._journal.read(partial(judged_runs, after_serial=after, limit=PAGE))
            if not rows:
                return report
            after = rows[-1].serial
            report.judged += len(rows)
            report.changed += await self._judge(rows, fold or self.fold)

    async def these(self, run_ids: Sequence[str], fold: Fold | None = None) -> None:
        """Whatever their state: a settled one for its log's health."""
        found = await self._journal.read(lambda conn: [get(conn, run_id) for run_id in run_ids])
        await self._judge([row for row in found if row is not None], fold or self.fold)

    async def row(self, run_id: str) -> RunRow:
        """As the journal has it.  Raises ``UNKNOWN_RUN``."""
        row = await self._journal.read(lambda conn: get(conn, run_id))
        if row is None:
            raise unknown_run(run_id)
        return row

    async def fold(self, ready: Sequence[Judged], *, patient: bool = False) -> list[RunRow]:
        """Into the journal, in one commit.  Raises what `act.fold` does."""
        rows = await fold(self._journal, ready, self._clock, patient=patient)
        failpoint("reconcile.folded")
        return rows

    async def _judge(self, rows: Sequence[RunRow], fold: Fold) -> list[RunRow]:
        """The rows that changed.  A run whose evidence moved meanwhile is looked at again."""
        changed: list[RunRow] = []
        for _ in range(_ROUNDS):
            ready, moved = await self._blocking(partial(self._look_and_speak, rows))
            if ready:
                changed += await fold(ready)
            rows = [item.row for item in moved]
            if not rows:
                break
        return changed

    # Blocking.

    def _look_and_speak(self, rows: Sequence[RunRow]) -> tuple[list[Judged], list[Judged]]:
        """What is news and may be folded, and what has to be looked at again."""
        news = [item for item in self._look_at(rows) if is_news(item)]
        if not news:
            return [], []
        failpoint("reconcile.judged")
        spoken = list(zip(news, self._speak(news), strict=True))
        ready = [item for item, said in spoken if said is not Spoken.CHANGED]
        return ready, [item for item, said in spoken if said is Spoken.CHANGED]

    def _look_at(self, rows: Sequence[RunRow]) -> list[Judged]:
        """All that may be in passing share one short wait."""
        seen = self._looks(rows)
        deadline = time.monotonic() + PATIENCE
        pending = [row for row in rows if row.run_id in seen and in_passing(seen[row.run_id])]
        while pending and time.monotonic() < deadline:
            time.sleep(0.002)
            seen.update(self._looks(pending))
            pending = [row for row in pending if in_passing(seen[row.run_id])]
        found = ((row, seen[row.run_id]) for row in rows if row.run_id in seen)
        return [Judged(row, evidence, decide(evidence)) for row, evidence in found]

    def _looks(self, rows: Sequence[RunRow]) -> dict[str, Observation]:
        """What cannot even be looked at harms only itself."""
        seen = {}
        for row in rows:
            try:
                seen[row.run_id] = look(row, self._place)
            except Exception as error:  # noqa: BLE001  (whatever it is, the next run must be judged)
                self._not_seen(row.run_id, error)
        return seen

    def _speak(self, news: Sequence[Judged]) -> list[Spoken]:
        """Every sync blocks."""
        for item in news:
            clear_away(item, self._place)
        if sum(map(owes_word, news)) > WORDS_AT_ONCE:
            return [Spoken.SILENT] * len(news)
        return [speak(item, self._place, self._clock) for item in news]
