"""`runs.transition` for a caller that judged the row it holds: no read before the write.

The compare-and-set is on state *and* attempt, so a verdict on one attempt never
hits the next, and thousands of runs settle in one transaction at one UPDATE each.
"""

from __future__ import annotations

import sqlite3
from dataclasses import replace

from ..model.outcome import Outcome
from ..model.states import SETTLED_STATES, Rule, RunState, Trigger, next_state
from . import feed
from .errors import StaleState, TransitionRefused
from .rows import Document, RunRow, encode_optional
from .runs import SQL_END_ATTEMPT, get

# As `runs.SQL_TRANSITION`, without RETURNING: that costs as much as the write itself.
SQL_ADVANCE = """
UPDATE runs SET
    state = ?, updated_ns = ?, reason = ?, outcome = ?, receipt = coalesce(?, receipt), evidence = ?,
    retryable = ?, worker = coalesce(?, worker), program = coalesce(?, program)
WHERE run_id = ? AND state = ? AND attempt = ?
"""


def advance(
    conn: sqlite3.Connection,
    row: RunRow,
    trigger: Trigger,
    now_ns: int,
    *,
    reason: str | None = None,
    outcome: Outcome | None = None,
    receipt: Document | None = None,
    evidence: Document | None = None,
    retryable: bool = False,
    worker: Document | None = None,
    program: Document | None = None,
) -> RunRow:
    """Move the run on if it still is in ``row``'s state and attempt.

    Returns ``row`` with what was written (late facts, as a stop request, are as in ``row``).

    Arguments and errors as in `runs.transition`; `StaleState` also when another
    attempt has begun, or the run is gone from the journal.
    """
    cell = next_state(row.state, trigger)
    if cell is Rule.SAME:
        return row
    if isinstance(cell, Rule) or trigger is Trigger.RETRY:
        raise TransitionRefused(row.run_id, row.state, trigger)
    if evidence is None and cell is not RunState.FINISHED:
        evidence = row.evidence
    if worker == row.worker:
        worker = None
    if program == row.program:
        program = None
    values = (
        cell.value, now_ns, reason, encode_optional(outcome and outcome.to_dict()), encode_optional(receipt),
        encode_optional(evidence), retryable, encode_optional(worker), encode_optional(program),
        row.run_id, row.state.value, row.attempt,
    )  # fmt: skip
    if conn.execute(SQL_ADVANCE, values).rowcount != 1:
        current = get(conn, row.run_id)
        raise StaleState(row.run_id, row.state, row.state if current is None else current.state)
    # A quarantined run is judged in every pass: only a new reason is news.
    if cell is not row.state or reason != row.reason:
        feed.append(conn, row.serial, row.attempt, cell, trigger.value, reason, now_ns)
    if cell in SETTLED_STATES:
        conn.execute(SQL_END_ATTEMPT, (now_ns, cell.value, reason, row.serial, row.attempt))
    return replace(
        row,
        state=cell,
        updated_ns=now_ns,
        reason=reason,
        outcome=None if outcome is None else outcome.to_dict(),
        receipt=row.receipt if receipt is None else receipt,
        evidence=evidence,
        retryable=retryable,
        worker=row.worker if worker is None else worker,
        program=row.program if program is None else program,
    )
