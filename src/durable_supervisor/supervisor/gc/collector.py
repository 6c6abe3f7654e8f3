"""Collects the logs of runs that are over, in an order that a crash at any step leaves explained.

A batch at a time: the tombstones into ``collected.log``, durably; then the rows, durably; then the
files.  A crash before the rows are written leaves runs as they were; one after it leaves files of
which the journal says that they are to go, and the next opening takes them away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ...journal import collecting, meta
from ...journal.collecting import KeptRun
from ...journal.connection import Journal
from ...journal.rows import RunRow
from ...journal.tombstones import Tombstone
from ...model.errors import ErrorCode, Phase, SupervisorError
from ...model.progress import Tell
from ...process.clock import Clock
from ...process.failpoints import failpoint
from ...process.locks import LockState, probe_lock
from ...process.shortage import is_shortage
from ...runlog.collected import CollectedLog
from ...runlog.files import NotRegularError
from ...runlog.paths import RunPaths, shard_of
from ...runlog.removal import disk_bytes, remove_run, settle_shard
from ..admission.refusals import starts_nothing_more
from ..loop.logs import report
from ..loop.tasks import Tasks
from ..state.file_errors import typed
from ..state.state_dir import StateDir
from .imported import remove_imported, see_imported, sweep_imported
from .plan import Plan, Sighting, plan

if TYPE_CHECKING:
    from ...model.collecting import Criteria, GcReport

BATCH = 250  # runs; others' starts wait for a transaction of so many


class _Call:
    """One collection; ``wanted`` no more once its caller was cancelled."""

    def __init__(self, asked: Criteria, apply: bool, tell: Tell) -> None:
        self.asked = asked
        self.apply = apply
        self.tell = tell
        self.wanted = True


class Collector:
    """Of one owner; one collection at a time."""

    def __init__(
        self,
        place: StateDir,
        journal: Journal,
        directory_id: str,
        clock: Clock,
        blocking: Callable[[Callable[[], Any]], Awaitable[Any]],
        tasks: Tasks,
    ) -> None:
        self._place = place
        self._journal = journal
        self._directory_id = directory_id
        self._clock = clock
        self._blocking = blocking
        self._tasks = tasks
        self._leaving = False
        self._noted: tuple[list[Tombstone], str] | None = None  # in the file, with its mark; not yet as rows
        self._one = asyncio.Lock()

    async def gc(self, asked: Criteria, apply: bool, tell: Tell) -> GcReport:
        """Plan, and with ``apply`` do it.  A cancelled one goes on to the end of a batch.

        Raises ``NO_SPACE``, ``BUSY``, ``STATE_DIR_REFUSED``, ``SUPERVISOR_CLOSED``.
        """
        call = _Call(asked, apply, tell)
        work = self._tasks.spawn(self._gc(call))
        try:
            report = await asyncio.shield(work)
        except asyncio.CancelledError:
            call.wanted = False
            raise
        if report is None:
            raise starts_nothing_more()
        return report

    def leave(self) -> None:
        """Begin nothing more; what goes on ends behind its batch."""
        self._leaving = True

    async def _gc(self, call: _Call) -> GcReport | None:
        """None where it was called off."""
        async with self._one:
            seen = await self._look(call)
            planned = await self._blocking(partial(plan, seen, call.asked, self._clock.wall_ns()))
            left = await self._apply(planned, call) if call.apply else 0
        return _report(planned, call.apply, left) if self._go_on(call) else None

    def _go_on(self, call: _Call) -> bool:
        return call.wanted and not self._leaving

    async def sweep(self) -> None:
        """Take away the files of runs that are collected already, as far as that can be done."""
        async with self._one:
            await self._blocking(partial(sweep_imported, self._place.imported))
            await self._sweep()

    async def _look(self, call: _Call) -> list[Sighting]:
        found: list[Sighting] = []
        serial = 0
        last = await self._journal.read(meta.next_serial) - 1
        while True:
            page = await self._journal.read(partial(collecting.kept_runs, after_serial=serial, limit=BATCH))
            found += await self._of_files(partial(_see, page, self._place.runs))
            if len(page) < BATCH or not self._go_on(call):
                found += await self._of_files(partial(see_imported, self._place.imported))
                return found
            serial = page[-1].serial
            call.tell("looking", serial, last)

    async def _apply(self, planned: Plan, call: _Call) -> int:
        await self._write_rows()
        left, count = await self._sweep(), len(planned.going)  # what was left before is tried again
        for start in range(0, count, BATCH):
            if not self._go_on(call):
                break
            batch = planned.going[start : start + BATCH]
            await self._collect([seen.run.run_id for seen in batch if seen.home is None])
            left = await self._sweep()
            left += await self._blocking(partial(remove_imported, [seen.home for seen in batch if seen.home]))
            call.tell("collecting", min(start + BATCH, count), count)
        return left

    async def _collect(self, run_ids: Sequence[str]) -> None:
        now_ns, directory_id = self._clock.wall_ns(), self._directory_id
        stones: list[Tombstone] = await self._journal.write(
            lambda conn: collecting.choose(conn, run_ids, directory_id, now_ns)
        )
        failpoint("gc.chosen")
        if not stones:
            return
        log = CollectedLog(self._place.runs)
        mark = await self._of_files(lambda: log.append([stone.to_dict() for stone in stones]))
        failpoint("gc.recorded")
        self._noted = stones, str(mark)
        await self._write_rows()

    async def _write_rows(self) -> None:
        """What is noted in the file, once: a journal without room for it must not make the file grow."""
        if self._noted is None:
            return
        stones, mark = self._noted
        await self._journal.write(lambda conn: collecting.collect(conn, stones, mark))
        self._noted = None
        failpoint("gc.collected")

    async def _sweep(self) -> int:
        newest = shard_of(await self._journal.read(meta.next_serial) - 1)
        left, serial = 0, 0
        while True:
            rows = await self._journal.read(partial(collecting.unswept, after_serial=serial, limit=BATCH))
            if not rows:
                return left
            serial = rows[-1].serial
            gone = await self._of_files(partial(_remove, rows, self._place.runs, newest))
            failpoint("gc.removed")
            # A power loss may take this back: then they are looked for once more.
            await self._journal.write(partial(collecting.swept, serials=gone), durable=False)
            left += len(rows) - len(gone)

    async def _of_files(self, work: Callable[[], Any]) -> Any:
        try:
            return await self._blocking(work)
        except (OSError, NotRegularError) as error:
            raise typed(error, self._place.runs, Phase.CONTROL, _full()) from error


def _see(page: Sequence[KeptRun], runs_dir: str) -> list[Sighting]:
    return [_see_one(run, RunPaths(runs_dir, run.shard, run.run_id)) for run in page]


def _see_one(run: KeptRun, paths: RunPaths) -> Sighting:
    """Files that cannot be looked at harm their own run alone."""
    try:
        locked = probe_lock(paths.log(run.attempt)) is LockState.HELD
        return Sighting(run, disk_bytes(paths, run.attempt), locked)
    except OSError as error:
        if is_shortage(error):
            raise
        return Sighting(run, 0, locked=False, unreadable=True)


def _remove(rows: Sequence[RunRow], runs_dir: str, newest_shard: str) -> list[int]:
    """Answers with the serials of those whose files are gone for good."""
    gone: list[int] = []
    last: dict[str, RunPaths] = {}
    for row in rows:
        paths = RunPaths(runs_dir, row.shard, row.run_id)
        try:
            remove_run(paths, row.attempt)
        except OSError as error:
            report(error)
            continue
        gone.append(row.serial)
        last[row.shard] = paths
    for shard, paths in last.items():
        settle_shard(paths, keep=(len(shard), shard) >= (len(newest_shard), newest_shard))
    return gone


def _full() -> SupervisorError:
    return SupervisorError(
        ErrorCode.NO_SPACE,
        "no space left to note which runs are collected; nothing that was not noted was removed",
        phase=Phase.CONTROL,
        retryable=True,
        hint="free some KiB on the file system of the state directory, then collect again",
    )


def _report(planned: Plan, applied: bool, left: int) -> GcReport:
    from ...model.collecting import MOST_NAMED, GcReport, GcRun  # no start pays for it

    return GcReport(
        runs=tuple(
            GcRun(
                seen.run.run_id,
                seen.run.request_id,
                seen.run.state.value,
                seen.run.outcome,
                seen.run.ended_ns,
                seen.bytes,
                seen.home is not None,
            )
            for seen in planned.going[:MOST_NAMED]
        ),
        count=len(planned.going),
        bytes=sum(seen.bytes for seen in planned.going),
        kept=planned.kept,
        applied=applied,
        left=left,
    )
