"""An operator's word on a run whose end cannot be known."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from functools import partial

from ...journal import runs
from ...journal.connection import Journal
from ...journal.copying import copy_mark
from ...journal.errors import StaleState
from ...journal.rows import RunRow
from ...model.arguments import note_of
from ...model.errors import ErrorCode, Phase, SupervisorError, invalid
from ...model.events import Kind, iso_time
from ...model.identity import ProcessIdentity
from ...model.states import RunState, Trigger
from ...model.view import RunView
from ...process import forks, tree
from ...process.caller import RUN_ID_VARIABLE
from ...process.clock import Clock, boot_id
from ...process.failpoints import failpoint
from ...process.identity import Liveness, probe
from ...process.locks import try_lock
from ...process.signals import signal_process
from ...reconcile.loop import Reconciler
from ...runlog.paths import RunPaths
from ...runlog.repair import LogUnusableError, open_for_append
from ...runlog.writer import LogFullError
from ..following.watches import remains
from ..gc.leftovers import Leftovers
from ..reading.lookup import Lookup
from ..workers.links import ExitWatch
from .dial import not_confirmed

ACTIONS = ("accept", "kill", "wait")
KILL_SECONDS = 10.0


class Resolver:
    """Resolves runs of one supervisor."""

    def __init__(
        self, lookup: Lookup, journal: Journal, reconciler: Reconciler, leftovers: Leftovers, clock: Clock
    ) -> None:
        self._lookup = lookup
        self._journal = journal
        self._reconciler = reconciler
        self._leftovers = leftovers
        self._clock = clock

    async def resolve(self, run_id: str, action: str, note: str, by_uid: int | None) -> RunView:
        note = note_of(note)
        if action not in ACTIONS:
            raise invalid("action", f"must be one of {', '.join(ACTIONS)}")
        row = await self._reconciler.judge(run_id)
        if row.state not in (RunState.UNKNOWN, RunState.QUARANTINED):
            raise runs.not_resolvable(run_id, row.state)
        if action != "accept":
            await self._check_ours(row)
        seen = await self._lookup.view(run_id)
        if action == "kill":  # also of an unknown run: its program is gone, daemons of it may not be
            await self._kill(seen)
        elif row.state is RunState.QUARANTINED and action == "wait":
            await self._wait(seen)
        failpoint("resolve.before_record")
        word = await self._record(run_id, action, note, os.getuid() if by_uid is None else by_uid)
        failpoint("resolve.recorded")
        row = await self._reconciler.judge(run_id)
        if row.state is RunState.QUARANTINED:
            await self._settle(run_id)
        failpoint("resolve.settled")
        paths = self._lookup.paths(row)
        await self._lookup.blocking(lambda: self._tell(paths, row.attempt, word))
        return await self._lookup.view(run_id, live=True)

    async def _check_ours(self, row: RunRow) -> None:
        """In a copy of another directory, processes of the runs that were copied are the original's."""
        mark = await self._journal.read(copy_mark)
        if mark is not None and row.serial <= mark.through:
            raise _of_the_original(row.run_id)

    async def _record(self, run_id: str, action: str, note: str, by_uid: int) -> dict[str, object]:
        now = self._clock.wall_ns()
        word: dict[str, object] = {
            "action": action,
            "note": note,
            "by_uid": by_uid,
            "at": iso_time(now),
        }
        await self._journal.write(lambda conn: runs.set_resolution(conn, run_id, word, now))
        return word

    def _tell(self, paths: RunPaths, attempt: int, word: dict[str, object]) -> None:
        """The word in the run's own timeline too, where its log can take one; the journal has it anyway."""
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            # Guarded: a copy that the host forks now must not keep the lock.
            fd = forks.opened(lambda: os.open(paths.log(attempt), flags))
        except OSError:
            return
        close: Callable[[], None] = partial(os.close, fd)
        try:
            if try_lock(fd):
                writer = open_for_append(paths, attempt, fd, boot_id=boot_id(), clock=self._clock)
                close = writer.close
                writer.finish(Kind.RUN_RESOLVED, word)
        except (OSError, LogFullError, LogUnusableError):
            return
        finally:
            with forks.no_fork:
                forks.release(fd)
                close()

    async def _settle(self, run_id: str) -> None:
        """The operator's word stands where evidence never will."""
        now = self._clock.wall_ns()
        try:
            await self._journal.write(
                lambda conn: runs.transition(
                    conn, run_id, Trigger.RESOLVE, RunState.QUARANTINED, now, reason="resolved"
                )
            )
        except StaleState:
            return  # late evidence settled it meanwhile: that counts for more

    async def _kill(self, seen: RunView) -> None:
        """End what is proven to be of the run: the program, what is below it, and named survivors."""
        for one in remains(seen):
            if probe(one) is Liveness.UNPROVABLE:
                raise _cannot_prove(seen.id)
            below = tree.descendants(one.pid)
            if probe(one) is not Liveness.ALIVE:  # asked afterwards: what was below its pid was below it
                below = []
            signal_process(one, signal.SIGKILL)
            tree.signal_all(below, signal.SIGKILL)
            await self._gone(seen.id, one, KILL_SECONDS)
        # Its worker is gone, so daemons of the run have other parents; the mark in their environment stays.
        tree.signal_all(tree.marked(RUN_ID_VARIABLE, seen.id), signal.SIGKILL)
        await self._leftovers.kill(seen.id)

    async def _wait(self, seen: RunView) -> None:
        for one in remains(seen):
            if probe(one) is Liveness.UNPROVABLE:
                raise _cannot_prove(seen.id)
            await self._gone(seen.id, one, None)

    async def _gone(self, run_id: str, one: ProcessIdentity, timeout: float | None) -> None:
        gone = asyncio.Event()
        watch = ExitWatch.of(one, gone.set)
        if watch is None:
            return
        try:
            async with asyncio.timeout(timeout):
                await gone.wait()
        except TimeoutError:
            raise not_confirmed(run_id, "the kill", timeout or 0.0) from None
        finally:
            watch.close()


def _of_the_original(run_id: str) -> SupervisorError:
    return SupervisorError(
        ErrorCode.NOT_CONFIRMED,
        f"run {run_id} was copied from another directory: what may be left of it is not this one's to end",
        phase=Phase.CONTROL,
        hint="end it in the original, or by hand, then `resolve --accept`",
        details={"run_id": run_id},
    )


def _cannot_prove(run_id: str) -> SupervisorError:
    return SupervisorError(
        ErrorCode.NOT_CONFIRMED,
        f"what is left of run {run_id} cannot be identified from here (another pid or time namespace)",
        phase=Phase.CONTROL,
        hint="end it where it runs, then `resolve --accept`",
        details={"run_id": run_id},
    )
