"""The owner's part in a stop: what never started is not tried again; and the stop of many at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from ...journal import runs
from ...journal.connection import Journal
from ...journal.rows import RunRow
from ...model.answers import ShutdownReport, StopReceipt
from ...model.errors import SupervisorError
from ...model.states import JUDGED_STATES, RunState
from ...process.clock import Clock
from ...process.failpoints import failpoint
from ..reading.lookup import Lookup


async def mark_stopped(row: RunRow, lookup: Lookup, journal: Journal, clock: Clock) -> None:
    """Note that its owner has stopped it, where that can still matter.  Raises what the journal raises."""
    if row.state not in JUDGED_STATES and row.state is not RunState.NOT_STARTED:
        return
    now = clock.wall_ns()
    try:
        await journal.write(lambda conn: runs.mark_stop_requested(conn, row.run_id, now))
    except SupervisorError:
        # A full disk, say. What was released is never retried: it needs no mark to be stopped.
        if (await lookup.view(row.run_id)).state not in (RunState.RUNNING, RunState.STOPPING):
            raise
    failpoint("stop.marked")


async def stop_all(run_ids: Sequence[str], stop: Callable[[str], Awaitable[StopReceipt]]) -> ShutdownReport:
    """Stop these runs side by side; one that fails keeps none of the others from it."""
    results = await asyncio.gather(*map(stop, run_ids), return_exceptions=True)
    report = ShutdownReport([], [])
    for run_id, result in zip(run_ids, results, strict=True):
        sure = isinstance(result, StopReceipt) and result.confirmed
        (report.stopped if sure else report.unconfirmed).append(run_id)
    return report
