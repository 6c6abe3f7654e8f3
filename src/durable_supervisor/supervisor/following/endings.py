"""How the owner learns that a run has ended, whoever started it; the reconciler then judges it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from ...journal.connection import Journal
from ...journal.listing import all_judged
from ...journal.rows import RunRow
from ...model.errors import SupervisorError
from ...model.states import SETTLED_STATES, RunState
from ...reconcile.loop import Reconciler
from ..loop.logs import report
from ..loop.tasks import Tasks
from ..reading.lookup import Lookup
from ..workers.links import Word, WorkerLink
from .told import ToldEnds
from .watches import LOOK_AGAIN_SECONDS, Watches

_RETRY_SECONDS = 1.0
_RELEASED_SECONDS = 0.1  # a run that is over within one or two of these needs no "running" in the journal


class Endings:
    """Over a run's channel (``links``) where this owner dispatched it, else by watching its processes."""

    def __init__(
        self,
        lookup: Lookup,
        reconciler: Reconciler,
        links: Mapping[str, WorkerLink],
        tasks: Tasks,
        told: ToldEnds,
    ) -> None:
        self.told = told
        self._lookup = lookup
        self._reconciler = reconciler
        self._links = links
        self._tasks = tasks
        self._watches = Watches(self._look_again)
        self._watching = True
        self._pauses: dict[str, float] = {}  # before the next try, for runs that could not be looked at
        self._released: list[str] = []  # since the last turn of the timer, and since the one before
        self._released_before: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def leave(self) -> None:
        """Watch nothing new: the owner is closing."""
        self._watching = False

    def close(self) -> None:
        """Watch nothing any more."""
        self.leave()
        self._watches.close()
        self.told.close()
        if self._timer is not None:
            self._timer.cancel()

    def on_news(self, link: WorkerLink, word: Word) -> None:
        """A channel of ours says something."""
        if self._lookup.closed:
            return
        if word is Word.RELEASED:
            self._released.append(link.run_id)
            if self._timer is None:
                self._timer = self._loop.call_later(_RELEASED_SECONDS, self._look_at_released)
        elif word is Word.FINISHED:
            self.told.told(link.row)
        elif word is Word.REFUSED:
            self.told.gave_up(link.run_id)
        elif link.run_id not in self.told:
            self.told.gave_up(link.run_id)
            self._reconciler.mark(link.run_id)
            if word is Word.CLOSED:  # should it live on all the same, its end is watched
                self.watch_later(link.run_id)

    def changed(self, row: RunRow) -> None:
        """The journal says something new about a run."""
        link = self._links.get(row.run_id)
        if link is not None:
            link.row = row  # what its end is judged by
        if row.state is RunState.QUARANTINED:
            self.told.gave_up(row.run_id)  # its worker may live, and have no log to tell of an end in
            self.watch_later(row.run_id)

    def unfolded(self) -> list[str]:
        """Runs that are over, and the journal may not know it."""
        return [*self.told.unfolded(), *(run_id for run_id, link in self._links.items() if link.ended)]

    def watch_later(self, run_id: str) -> None:
        """Watch it, without anybody waiting for that."""
        if self._watching:
            self._tasks.spawn_unawaited(self._watch(run_id))

    async def adopt(self, journal: Journal) -> None:
        """Runs of an earlier owner, and quarantined ones: be told when what they wait for has ended."""
        for row in await self._judged(journal):
            if not self._watching:
                return
            await self._watch(row.run_id)

    async def _judged(self, journal: Journal) -> list[RunRow]:
        """All of them, whatever it takes: nobody else tells of their ends in time."""
        while self._watching:
            try:
                return await journal.read(all_judged)
            except (OSError, SupervisorError) as error:  # no descriptor left to open the journal with, say
                report(error)
            await asyncio.sleep(_RETRY_SECONDS)
        return []

    def _look_at_released(self) -> None:
        """One timer for all, and none while nothing was released lately."""
        for run_id in self._released_before:
            self._mark_if_running(run_id)
        self._released_before, self._released, self._timer = self._released, [], None
        if self._released_before:
            self._timer = self._loop.call_later(_RELEASED_SECONDS, self._look_at_released)

    def _mark_if_running(self, run_id: str) -> None:
        link = self._links.get(run_id)
        if link is not None and not link.ended and not self._lookup.closed:
            self._reconciler.mark(run_id)

    async def _watch(self, run_id: str) -> None:
        try:
            seen = await self._lookup.view(run_id)
            if seen.state in SETTLED_STATES:
                self._reconciler.mark(run_id)  # it has ended since the journal was told of it
            elif self._watching and run_id not in self._links:
                self._watches.ensure(seen)
        except (OSError, SupervisorError) as error:
            report(error)  # its end must not go unseen because descriptors are short, say
            pause = self._pauses.get(run_id, _RETRY_SECONDS)
            self._pauses[run_id] = min(2 * pause, LOOK_AGAIN_SECONDS)
            self._watches.look_later(run_id, pause)
        else:
            self._pauses.pop(run_id, None)

    def _look_again(self, run_id: str) -> None:
        """What was watched has ended; its run is over in a moment, or goes on to be watched."""
        self._reconciler.mark(run_id)
        self.watch_later(run_id)
