"""What an owner does beside starting and judging runs, each part loaded when it is first needed.

A command line that starts a run and is gone needs none of it, and would spend a tenth of its time on that.
"""

from __future__ import annotations

import os
from collections.abc import Coroutine, Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from ..model.states import OPEN_STATES

if TYPE_CHECKING:
    from ..journal.connection import Journal
    from ..journal.rows import RunRow
    from ..process.clock import Clock
    from ..reconcile.loop import Reconciler
    from .controls.resolving import Resolver
    from .gc.collector import Collector
    from .gc.leftovers import Leftovers
    from .imports.importer import Importer
    from .loop.tasks import Tasks
    from .opening.opening import Identity
    from .reading.lookup import Lookup
    from .state.state_dir import StateDir

Part = TypeVar("Part", "Collector", "Importer")


class Housekeeping:
    """Of one owner."""

    def __init__(
        self,
        place: StateDir,
        journal: Journal,
        identity: Identity,
        clock: Clock,
        lookup: Lookup,
        reconciler: Reconciler,
        tasks: Tasks,
    ) -> None:
        self._place = place
        self._journal = journal
        self._identity = identity
        self._clock = clock
        self._lookup = lookup
        self._reconciler = reconciler
        self._tasks = tasks
        self._working: list[Collector | Importer] = []
        self._leaving = False

    @cached_property
    def collector(self) -> Collector:
        from .gc.collector import Collector

        return self._take_on(
            Collector(
                self._place,
                self._journal,
                self._identity.directory_id,
                self._clock,
                self._lookup.blocking,
                self._tasks,
            )
        )

    @cached_property
    def importer(self) -> Importer:
        from .imports.importer import Importer

        return self._take_on(
            Importer(
                self._place, self._journal, self._identity, self._clock, self._lookup.blocking, self._tasks
            )
        )

    @cached_property
    def leftovers(self) -> Leftovers:
        from .gc.leftovers import Leftovers

        return Leftovers(self._journal, self._identity.directory_id, self._lookup.blocking)

    @cached_property
    def resolver(self) -> Resolver:
        from .controls.resolving import Resolver

        return Resolver(self._lookup, self._journal, self._reconciler, self.leftovers, self._clock)

    def sweeps(self, changed: Iterable[RunRow], *, stays: bool) -> list[Coroutine[Any, Any, None]]:
        """To finish what owners and workers that were killed may have left half done.

        ``changed``: the runs of which the journal was just told something.  An owner that ``stays`` looks for
        groups in any case: who was told of their runs may have been killed before it had removed them.
        """
        imports = os.path.lexists(self._place.imported)
        due: list[Coroutine[Any, Any, None]] = []
        if stays or any(map(may_have_left_groups, changed)):
            due.append(self.leftovers.sweep())
        if imports or self._identity.has_collected:
            due.append(self.collector.sweep())
        if imports:
            due.append(self.importer.sweep())
        return due

    def leave(self) -> None:
        """Begin nothing more."""
        self._leaving = True
        for part in self._working:
            part.leave()

    def _take_on(self, part: Part) -> Part:
        self._working.append(part)
        if self._leaving:
            part.leave()
        return part


def may_have_left_groups(row: RunRow) -> bool:
    """Of a run that is over: was it not its worker that said so, which removes them before it does?"""
    return row.state not in OPEN_STATES and (row.receipt or {}).get("cleanup_confirmed") is not True
