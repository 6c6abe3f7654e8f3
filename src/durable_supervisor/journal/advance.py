"""Move a run along the transition table: the one place where a state is written.

The compare-and-set is on state *and* attempt, so a verdict on one attempt never
hits the next; no read comes before the write, so thousands of runs settle in one
transaction at one UPDATE each.
"""

from __future__ import annotations

import sqlite3
from typing import TypedDict, Unpack

from ..model.outcome import Outcome
from ..model.states import SETTLED_STATES, Rule, RunState, Trigger, next_state
from . import feed
from .errors import StaleState, TransitionRefused
from .rows import Document, RunRow, encode_optional

# Without RETURNING: that costs as much as the write itself.
SQL_ADVANCE = """
UPDATE runs SET
    state = ?, updated_ns = ?, ended_ns = ?, reason = ?, outcome = ?, evidence = ?, retryable = ?,
    receipt = coalesce(?, receipt), worker = coalesce(?, worker), program = coalesce(?, program)
WHERE run_id = ? AND state = ? AND attempt = ?
"""
_NEED_INTENT = (Trigger.RETRY, Trigger.REQUEUE)  # see `runs.admit`

SQL_STATE = "SELECT state FROM runs WHERE run_id = ?"


class Facts(TypedDict, total=False):
    """What comes with a new state; see `advance`."""

    reason: str | None
    outcome: Outcome | None
    receipt: Document | None
    evidence: Document | None
    retryable: bool
    worker: Document | None
    program: Document | None


def advance(
    conn: sqlite3.Connection, row: RunRow, trigger: Trigger, now_ns: int, **facts: Unpack[Facts]
) -> RunRow:
    """Move the run on if it still is in ``row``'s state and attempt, with its feed entry.

    Returns ``row`` with what was written (late facts, as a stop request, are as in ``row``).

    ``reason`` is needed for not_started, unknown and quarantined; ``outcome`` for
    finished (a quarantined run may carry one too: the exit that was kept).  ``receipt``,
    ``worker`` and ``program`` stay as they were where None is given; ``evidence`` stays
    except in finished.  A cell that says "already so" writes nothing.

    Raises `StaleState` (also when another attempt has begun, or the run is gone from the
    journal), `TransitionRefused`; sqlite3.IntegrityError where the SQL guards see a bug
    of the caller.
    """
    cell = next_state(row.state, trigger)
    if cell is Rule.SAME:
        return row
    if isinstance(cell, Rule) or trigger in _NEED_INTENT:
        raise TransitionRefused(row.run_id, row.state, trigger)
    moved = _moved(row, cell, now_ns, facts)
    _write(conn, row, moved)
    # A quarantined run is judged in every pass: only a new reason is news.
    if cell is not row.state or moved.reason != row.reason:
        feed.append(conn, row.serial, row.attempt, cell, trigger.value, moved.reason, now_ns)
    return moved


def _moved(row: RunRow, cell: RunState, now_ns: int, facts: Facts) -> RunRow:
    outcome, evidence = facts.get("outcome"), facts.get("evidence")
    if evidence is None and cell is not RunState.FINISHED:
        evidence = row.evidence
    return row._replace(
        state=cell,
        updated_ns=now_ns,
        reason=facts.get("reason"),
        outcome=None if outcome is None else outcome.to_dict(),
        receipt=facts.get("receipt") or row.receipt,
        evidence=evidence,
        retryable=facts.get("retryable", False),
        worker=facts.get("worker") or row.worker,
        program=facts.get("program") or row.program,
    )


def _write(conn: sqlite3.Connection, row: RunRow, moved: RunRow) -> None:
    kept = ((moved.receipt, row.receipt), (moved.worker, row.worker), (moved.program, row.program))
    values = (
        moved.state.value, moved.updated_ns, moved.updated_ns if moved.state in SETTLED_STATES else None,
        moved.reason, encode_optional(moved.outcome),
        encode_optional(moved.evidence), moved.retryable,
        *(None if new == old else encode_optional(new) for new, old in kept),
        row.run_id, row.state.value, row.attempt,
    )  # fmt: skip
    if conn.execute(SQL_ADVANCE, values).rowcount != 1:
        found = conn.execute(SQL_STATE, (row.run_id,)).fetchone()
        raise StaleState(row.run_id, row.state, row.state if found is None else RunState(found[0]))
