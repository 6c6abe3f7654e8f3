"""What an owner does beside starting and judging runs, each part loaded when it is first needed.

A command line that starts a run and is gone needs none of it, and would spend a tenth of its time on that.
"""

from __future__ import annotations

import os
from collections.abc import Coroutine
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from ..journal.connection import Journal
from ..process.clock import Clock
from ..reconcile.loop import Reconciler
from .lookup import Lookup
from .opening import Identity
from .state_dir import StateDir
from .tasks import Tasks

if TYPE_CHECKING:
    from .gc import Collector
    from .importing import Importer
    from .leftovers import Leftovers
    from .resolving import Resolver

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
        from .gc import Collector

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
        from .importing import Importer

        return self._take_on(
            Importer(
                self._place, self._journal, self._identity, self._clock, self._lookup.blocking, self._tasks
            )
        )

    @cached_property
    def leftovers(self) -> Leftovers:
        from .leftovers import Leftovers

        return Leftovers(self._journal, self._identity.directory_id, self._lookup.blocking)

    @cached_property
    def resolver(self) -> Resolver:
        from .resolving import Resolver

        return Resolver(self._lookup, self._journal, self._reconciler, self.leftovers, self._clock)

    def sweeps(self, *, judged: int) -> list[Coroutine[Any, Any, None]]:
        """To finish what owners and workers that were killed may have left half done.

        ``judged``: how many runs were not known to be over.  Only one of these can have had a worker that was
        killed; a group of it that is found with a process in it now is looked for again by the opening that
        judges the run next, and by every `reconcile`.
        """
        imports = os.path.lexists(self._place.imported)
        due: list[Coroutine[Any, Any, None]] = []
        if judged:
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
