"""Whose end the owner waits for, when it has no channel to the worker: adopted and quarantined runs.

A pidfd tells of the end of any process, child or not, so nothing polls.  Only a
process that cannot be watched from here (another namespace, an old kernel) makes
its run be looked at now and then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...model.identity import ProcessIdentity, identity_of
from ...model.states import OPEN_STATES, RunState
from ...process.identity import Liveness, probe
from ..workers.links import ExitWatch

if TYPE_CHECKING:
    from ...model.view import RunView

LOOK_AGAIN_SECONDS = 15.0
_SOON = 1.0
_MOMENT = 0.1


class Watches:
    """At most one watch per run; ``on_end(run_id)`` is called once when its process has gone."""

    def __init__(self, on_end: Callable[[str], None]) -> None:
        self._on_end = on_end
        self._watches: dict[str, ExitWatch] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._loop = asyncio.get_running_loop()

    def ensure(self, seen: RunView) -> None:
        """Watch what this run waits for: its worker, or what is left of a quarantined one."""
        if seen.id in self._watches or seen.id in self._timers:
            return
        awaited = awaited_process(seen)
        if awaited is None:
            if seen.state in OPEN_STATES:  # its worker has not logged who it is
                self.look_later(seen.id, _SOON)
            return
        watch = ExitWatch.of(awaited, lambda: self._ended(seen.id))
        if watch is not None:
            self._watches[seen.id] = watch
        else:
            gone = probe(awaited) is Liveness.GONE  # just now: what it held is free in a moment
            seconds = _MOMENT if gone else LOOK_AGAIN_SECONDS
            self.look_later(seen.id, seconds)

    def look_later(self, run_id: str, seconds: float = _SOON) -> None:
        """Call ``on_end`` then: nothing tells when there is news."""
        if run_id not in self._timers:
            self._timers[run_id] = self._loop.call_later(seconds, self._ended, run_id)

    def close(self) -> None:
        """Watch nothing any more."""
        for watch in self._watches.values():
            watch.close()
        for timer in self._timers.values():
            timer.cancel()
        self._watches.clear()
        self._timers.clear()

    def _ended(self, run_id: str) -> None:
        self._watches.pop(run_id, None)
        self._timers.pop(run_id, None)
        self._on_end(run_id)


def awaited_process(seen: RunView) -> ProcessIdentity | None:
    """The process whose end would be news about this run; None when there is none to wait for."""
    if seen.state in OPEN_STATES:
        return identity_of(seen.worker)
    if seen.state is RunState.QUARANTINED:
        for one in remains(seen):
            if probe(one) is not Liveness.GONE:
                return one
    return None


def remains(seen: RunView) -> list[ProcessIdentity]:
    """Processes that the log names as the run's own, apart from its worker."""
    survivors = (seen.receipt or {}).get("survivors")
    named = [seen.program, *(survivors if isinstance(survivors, list) else [])]
    found = [identity_of(form) for form in named if isinstance(form, dict)]
    return [one for one in found if one is not None]
