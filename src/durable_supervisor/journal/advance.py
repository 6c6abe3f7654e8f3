"""`runs.transition` for a caller that judged the row it holds: no read before the write.

The compare-and-set is on state *and* attempt, so a verdict on one attempt never
hits the next, and thousands of runs settle in one transaction at one UPDATE each.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from typing import Any

from ..model.outcome import Outcome
from ..model.states import SETTLED_STATES, Rule, RunState, Trigger, next_state
from . import feed
from .errors import StaleState, TransitionRefused
from .rows import Document, RunRow, encode_optional
from .runs import SQL_END_ATTEMPT, SQL_TRANSITION, get

# What of a row can change while its attempt and what was asked for stay the same.
_CHANGING = ("worker", "program", "outcome", "receipt", "evidence", "resolution", "log_health")


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
    """Move the run on if it still is in ``row``'s state and attempt.  Returns the new row.

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
    values = (
        cell.value, now_ns, reason, encode_optional(outcome and outcome.to_dict()), encode_optional(receipt),
        encode_optional(evidence), retryable, encode_optional(worker), encode_optional(program),
        row.run_id, row.state.value, row.attempt,
    )  # fmt: skip
    found = conn.execute(SQL_TRANSITION, values).fetchone()
    if found is None:
        current = get(conn, row.run_id)
        raise StaleState(row.run_id, row.state, row.state if current is None else current.state)
    # A quarantined run is judged in every pass: only a new reason is news.
    if cell is not row.state or reason != row.reason:
        feed.append(conn, row.serial, row.attempt, cell, trigger.value, reason, now_ns)
    if cell in SETTLED_STATES:
        conn.execute(SQL_END_ATTEMPT, (now_ns, cell.value, reason, row.serial, row.attempt))
    return _moved(row, found, cell)


def _moved(row: RunRow, found: sqlite3.Row, cell: RunState) -> RunRow:
    changed: dict[str, Any] = {
        name: None if found[name] is None else json.loads(found[name]) for name in _CHANGING
    }
    return replace(
        row,
        state=cell,
        updated_ns=found["updated_ns"],
        reason=found["reason"],
        retryable=bool(found["retryable"]),
        stop_requested=bool(found["stop_requested"]),
        **changed,
    )
