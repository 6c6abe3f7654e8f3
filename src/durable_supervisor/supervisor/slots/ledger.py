"""What the journal says of the slots when their directory is opened, its runs having just been judged."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ...journal.listing import SlotRow, slot_rows
from ...model.states import RunState
from ...process.clock import boot_id
from ...runlog.evidence import read_evidence
from ...runlog.paths import RunPaths
from .slots import holds_slot

if TYPE_CHECKING:
    from ...journal.access import JournalAccess


async def read_ledger(
    journal: JournalAccess, runs_dir: str, blocking: Callable[[Callable[[], Any]], Awaitable[Any]]
) -> tuple[list[SlotRow], list[SlotRow]]:
    """Who holds a slot, and who waits for one, or was let go and may not know it yet."""
    rows = await journal.read(partial(slot_rows, boot_id=boot_id()))
    starting = [row for row in rows if row.state is RunState.STARTING]
    untold = await blocking(lambda: {row.run_id for row in starting if _still_waits(row, runs_dir)})
    queued = [row for row in rows if row.state is RunState.QUEUED or row.run_id in untold]
    held = [row for row in rows if holds_slot(row, boot_id()) and row.run_id not in untold]
    return held, queued


def _still_waits(row: SlotRow, runs_dir: str) -> bool:
    """Was it let go, and never told?  Its log says so."""
    evidence = read_evidence(RunPaths(runs_dir, row.shard, row.run_id), row.attempt)
    return evidence.waiting and evidence.terminal is None
