"""Runs whose workers have told this owner that all is over, until the journal knows.

A worker says so once its receipt is on the disk.  Then one look at a short log serves everybody: who waits
for the run is told by it, and the journal is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ...journal.rows import RunRow
from ...model.states import RunState
from ...reconcile.loop import GATHER_SECONDS, Reconciler
from ...reconcile.observe import Place
from ..reading.lookup import Lookup
from ..workers.links import WorkerLink

if TYPE_CHECKING:
    from ...model.view import RunView
    from ...reconcile.told import ToldEnd

    _Waiter = asyncio.Future[RunView | None]


class ToldEnds:
    """The looks of many runs share a turn of one thread; where nobody waits, they gather for it first.

    ``hurried``: does somebody wait for what any of them comes to, such as its slot?
    """

    def __init__(
        self,
        lookup: Lookup,
        place: Place,
        reconciler: Reconciler,
        links: Mapping[str, WorkerLink],
        hurried: Callable[[], bool],
    ) -> None:
        self._lookup = lookup
        self._place = place
        self._reconciler = reconciler
        self._links = links
        self._hurried = hurried
        self._loop = asyncio.get_running_loop()
        self._due: dict[str, RunRow] = {}  # to be looked at
        self._under_way: Sequence[RunRow] = ()  # being looked at
        self._views: dict[str, RunView] = {}  # seen, and not in the journal yet
        self._waiters: dict[str, list[_Waiter]] = {}
        self._next: asyncio.Handle | None = None
        self._soon = False  # is it due in the next turn of the loop?

    def close(self) -> None:
        """Nobody waits any longer."""
        if self._next is not None:
            self._next.cancel()
        for run_id in list(self._waiters):
            self._answer(run_id, None)

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._views or run_id in self._due or self._is_looked_at(run_id)

    def unfolded(self) -> list[str]:
        """Those that the journal may not know to be over."""
        return [*self._due, *(row.run_id for row in self._under_way), *self._views]

    def told(self, row: RunRow) -> None:
        """Its worker says that all is over."""
        self._due[row.run_id] = row
        if row.run_id in self._waiters or self._hurried():
            self._look_soon()
        elif self._next is None:
            self._next = self._loop.call_later(GATHER_SECONDS, self._look)

    def gave_up(self, run_id: str) -> None:
        """It is not to be told of this run: whoever waits has to look."""
        self._answer(run_id, None)

    async def wait(self, run_id: str, timeout: float | None) -> RunView | None:
        """The finished run, once its worker has said so; None where it does not, or not in time."""
        if run_id in self._views:
            return self._views[run_id]
        if run_id in self._due:
            self._look_soon()
        elif not self._is_looked_at(run_id) and not self._may_be_told(run_id):
            return None
        waiter: _Waiter = self._loop.create_future()
        self._waiters.setdefault(run_id, []).append(waiter)
        timer = None if timeout is None else self._loop.call_later(timeout, _settle, waiter, None)
        try:
            return await waiter
        finally:
            if timer is not None:
                timer.cancel()
            self._forget(run_id, waiter)

    def _may_be_told(self, run_id: str) -> bool:
        link = self._links.get(run_id)
        return link is not None and not link.ended and link.row.state is not RunState.QUARANTINED

    def _is_looked_at(self, run_id: str) -> bool:
        return any(row.run_id == run_id for row in self._under_way)

    def _look_soon(self) -> None:
        """In the next turn of the loop, so that all that are told of in this one share it."""
        if self._under_way or self._soon:
            return  # the next look follows that one
        if self._next is not None:
            self._next.cancel()
        self._next, self._soon = self._loop.call_soon(self._look), True

    def _look(self) -> None:
        self._next, self._soon = None, False
        if self._under_way or not self._due or self._lookup.closed:
            return
        self._under_way, self._due = list(self._due.values()), {}
        try:
            self._lookup.begin(partial(_look_at, self._under_way, self._place), self._looked)
        except OSError:  # no thread to be had: the reconciler tries again until there is one
            self._looked({})

    def _looked(self, ends: Mapping[str, ToldEnd]) -> None:
        rows, self._under_way = self._under_way, ()
        for row in rows:
            end = ends.get(row.run_id)
            if end is None:
                self._reconciler.mark(row.run_id)
            else:
                self._views[row.run_id] = end.view
            self._answer(row.run_id, None if end is None else end.view)
        if ends and not self._lookup.closed:
            fold = self._reconciler.fold_soon([end.judged for end in ends.values()])
            fold.add_done_callback(lambda _: self._folded(ends))
        if self._due:
            self._look_soon()

    def _folded(self, ends: Mapping[str, ToldEnd]) -> None:
        for run_id in ends:
            self._views.pop(run_id, None)

    def _answer(self, run_id: str, seen: RunView | None) -> None:
        for waiter in self._waiters.pop(run_id, ()):
            _settle(waiter, seen)

    def _forget(self, run_id: str, waiter: _Waiter) -> None:
        """It waits no more; as a rule it was answered, and is forgotten already."""
        waiters = self._waiters.get(run_id, [])
        if waiter in waiters:
            waiters.remove(waiter)
            if not waiters:
                del self._waiters[run_id]


def _look_at(rows: Sequence[RunRow], place: Place) -> dict[str, ToldEnd]:
    """In a thread.  Whatever is in its way, the reconciler meets it as well, and tells of it."""
    try:
        from ...reconcile.told import look_at_ends  # a command line that starts a run is gone before its end

        return look_at_ends(rows, place)
    except Exception:  # noqa: BLE001
        return {}


def _settle(waiter: _Waiter, seen: RunView | None) -> None:
    if not waiter.done():
        waiter.set_result(seen)
