"""Free slots go to the runs that wait for one, each held by its own waiting worker.

That a run leaves the queue is on the disk (``queued`` to ``starting``, a compare-and-set in the
journal) before its worker hears of it.  So whatever happens, a row that says ``queued`` is
proof that the program never ran: also after a power loss, which may take back what the
worker logged, and would take back a word that had been sent too early.  Between the two a crash
leaves a ``starting`` row with a worker that still waits: the next to open tells it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ...journal import runs
from ...journal.advance import advance
from ...journal.connection import Journal
from ...journal.listing import slot_rows
from ...journal.rows import RunRow
from ...model.errors import SupervisorError, unknown_run
from ...model.states import OPEN_STATES, RunState, Trigger
from ...process.clock import Clock, boot_id
from ...process.failpoints import failpoint
from ...reconcile.loop import Reconciler
from ..loop.logs import report
from ..loop.tasks import Tasks, is_passing
from .ledger import read_ledger
from .slots import Slots, Waiter, waiter_of

if TYPE_CHECKING:
    import sqlite3

_RETRY_SECONDS = 1.0
_CLOSE_SECONDS = 0.5
FOLD_DELAY = 0.05  # a run that is over by then needs no separate "running" in the journal

# ``tell(run_id, op, control_id)``: the worker has answered this control, or there is none any more.
Tell = Callable[[str, str, str], Awaitable[None]]


class Queue:
    """Serves the queue of one supervisor.  A worker that does not answer holds up nobody else."""

    def __init__(
        self,
        slots: Slots,
        journal: Journal,
        reconciler: Reconciler,
        clock: Clock,
        tell: Tell,
    ) -> None:
        self._slots = slots
        self._journal = journal
        self._reconciler = reconciler
        self._clock = clock
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._tasks = Tasks()
        self._counting: asyncio.Task[None] | None = None
        self._closed = False

    async def load(self, runs_dir: str, blocking: Callable[[Callable[[], Any]], Awaitable[Any]]) -> None:
        """Fill the ledger from the journal, whose runs have just been judged, and serve the queue."""
        held, queued = await read_ledger(self._journal, runs_dir, blocking)
        self._slots.load(held, queued)
        for row in queued:
            if row.stop_requested:  # the stop itself may have been lost with an earlier owner
                self._tasks.spawn_unawaited(self._tell_again(row.run_id, "stop", row.attempt))
        self.serve()

    def line_up(self, row: RunRow) -> None:
        """The worker of this queued run waits."""
        self._slots.line_up(waiter_of(row))
        self.serve()

    def serve(self) -> None:
        """A slot may be free: let go whose turn it is."""
        if self._closed or self._loop.is_closed():  # a start that ends with its loop asks, too
            return
        for waiter in self._slots.pick():
            self._tasks.spawn_unawaited(self._let_go(waiter))

    async def count_again(self) -> None:
        """Somebody found no slot: runs may have ended that the journal does not know of yet.

        Whoever waited for one has read its end in the log.  Many callers share one look.
        """
        if self._counting is None or self._counting.done():
            self._counting = asyncio.create_task(self._count())
        await asyncio.shield(self._counting)

    async def close(self) -> None:
        """Let nobody go any more; those that wait go on waiting.

        Who has just been let go is told, so that a short-lived owner leaves nothing half done; a
        worker that does not answer is left to the next one.
        """
        self._closed = True
        await self._tasks.settle(_CLOSE_SECONDS)
        self._tasks.cancel()
        await self._tasks.settle()

    async def _let_go(self, waiter: Waiter) -> None:
        failpoint("queue.picked")
        try:
            row = await self._journal.write(partial(_mark, waiter=waiter, now_ns=self._clock.wall_ns()))
        except SupervisorError as error:  # a busy journal, a full disk
            report(error)
            self._slots.put_back(waiter)
            self._loop.call_later(_RETRY_SECONDS, self.serve)
            return
        failpoint("queue.marked")
        if not _in_line(row, waiter):  # it has ended in the queue, or goes on already
            self._slots.note(row)
            self.serve()
            return
        if row.stop_requested:  # whoever asked for it tells the worker
            self._slots.put_back(waiter, ready=False)
            self.serve()
            return
        await self._tell_again(row.run_id, "dispatch", row.attempt)
        failpoint("queue.sent")

    async def _tell_again(self, run_id: str, op: str, attempt: int) -> None:
        """The id is the same each time, so that a worker takes it once however often it is told."""
        while True:
            try:
                await self._tell(run_id, op, f"queue-{op}-{attempt}")
                break
            except (OSError, SupervisorError) as error:
                if not is_passing(error):
                    raise
                report(error)  # no descriptor left, a busy journal: the worker still waits for the word
            await asyncio.sleep(_RETRY_SECONDS)
        self._loop.call_later(FOLD_DELAY, self._reconciler.mark, run_id)

    async def _count(self) -> None:
        rows = await self._journal.read(partial(slot_rows, boot_id=boot_id()))
        await self._reconciler.judge_all([row.run_id for row in rows if row.state in OPEN_STATES])


def _mark(conn: sqlite3.Connection, waiter: Waiter, now_ns: int) -> RunRow:
    """Out of the queue, unless it has left it already, or its owner wants it stopped."""
    row = runs.get(conn, waiter.run_id)
    if row is None:
        raise unknown_run(waiter.run_id)
    if row.attempt != waiter.attempt or row.state is not RunState.QUEUED or row.stop_requested:
        return row
    moved = advance(conn, row, Trigger.DISPATCH, now_ns)
    failpoint("queue.marking")
    return moved


def _in_line(row: RunRow, waiter: Waiter) -> bool:
    """Is there still a worker of this attempt to be told?  As far as the journal knows."""
    return row.attempt == waiter.attempt and row.state in (RunState.QUEUED, RunState.STARTING)
