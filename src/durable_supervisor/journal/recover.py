"""Rebuild rows from what the run logs say: for a lost journal, and for one restored from a backup.

The scan of the logs is the caller's; here is the SQL side.  It only adds: a row
that is there already is brought forward along the transition table, never rewritten.
Rows come back as ``starting`` and the reconciler judges them by their logs, unless a verdict in
the log is passed in.  So do those whose log tells of the queue only: the lost journal may have
let the run go, and what its worker logged then may not have reached the disk.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..model.outcome import Outcome
from ..model.states import SETTLED_STATES, RunState, Trigger
from . import feed, meta, runs
from .rows import Document, Intent, RunRow, new_row

SUPERSEDED = "superseded_attempt"  # a later attempt's log proves that this one was a not_started

SQL_SERIAL_TAKEN = "SELECT run_id FROM runs WHERE serial = ?"

_TRIGGERS = {
    RunState.FINISHED: Trigger.FINISH,
    RunState.NOT_STARTED: Trigger.REFUSE,
    RunState.UNKNOWN: Trigger.LOSE,
    RunState.QUARANTINED: Trigger.QUARANTINE,
}

_RETRIED = (RunState.QUEUED, RunState.STARTING, RunState.NOT_STARTED)  # may be, or become, retryable


class RecoveredAttempt(NamedTuple):
    """One log of a run: from its first segment's header."""

    attempt: int
    intent_ns: int
    boot_id: str
    first_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredRun:
    """A run as its log headers tell it; ``attempts`` oldest first, at least one.

    ``state`` other than ``STARTING`` is a verdict found in the newest log (finished,
    not_started, unknown, quarantined), with the fields that belong to it.
    """

    serial: int
    run_id: str
    shard: str
    owner: str
    request_id: str
    argv: Sequence[str]
    cwd: str
    limits: Mapping[str, object]
    completion: str
    digests: Mapping[str, str]
    key_id: str
    attempts: Sequence[RecoveredAttempt]
    labels: Mapping[str, str] = field(default_factory=dict)
    env_names: Sequence[str] = ()
    nested_in: str | None = None
    survives_unit_restart: bool | None = None
    priority: int = 0
    state: RunState = RunState.STARTING
    reason: str | None = None
    outcome: Outcome | None = None
    receipt: Document | None = None
    evidence: Document | None = None
    retryable: bool = False
    stop_requested: bool = False
    worker: Document | None = None
    program: Document | None = None
    ended_ns: int | None = None  # where it is known when the verdict was found


class Conflict(NamedTuple):
    """A log that the journal contradicts.  No request id of such a log is ever executed again."""

    run_id: str
    problem: str  # request_id_taken | settled | serial_taken
    other_run_id: str | None = None


@dataclass(slots=True)
class Rebuilt:
    """Run ids by what was done: ``added``, ``advanced`` (to a later attempt or a verdict), ``kept``."""

    added: list[str] = field(default_factory=list)
    advanced: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    conflicts: list[Conflict] = field(default_factory=list)


def rebuild(conn: sqlite3.Connection, logs: Iterable[RecoveredRun], now_ns: int) -> Rebuilt:
    """Bring the journal up to its logs.  Idempotent; ``now_ns`` is the feed's time of it."""
    report = Rebuilt()
    for run in sorted(logs, key=lambda run: run.serial):
        if not run.attempts:
            raise ValueError(f"run {run.run_id}: no attempt")
        _rebuild_one(conn, run, now_ns, report)
    return report


def _rebuild_one(conn: sqlite3.Connection, run: RecoveredRun, now_ns: int, report: Rebuilt) -> None:
    row = before = runs.get(conn, run.run_id)
    if row is None:
        row = _add(conn, run, now_ns, report)
        if row is None:
            return
    for attempt in run.attempts:
        while row.attempt < attempt.attempt:  # more than one step where a log in between is gone
            if _closed_to_retry(row):
                report.conflicts.append(Conflict(run.run_id, "settled"))
                return
            row = _next_attempt(conn, row, run, attempt, now_ns)
    if row.attempt == run.attempts[-1].attempt:
        row = _settle(conn, row, run, now_ns)
    where = report.added if before is None else report.kept if row == before else report.advanced
    where.append(run.run_id)


def _add(conn: sqlite3.Connection, run: RecoveredRun, now_ns: int, report: Rebuilt) -> RunRow | None:
    clash = runs.find_request(conn, run.owner, run.request_id)
    if clash is not None:
        report.conflicts.append(Conflict(run.run_id, "request_id_taken", clash.run_id))
        if clash.state in _RETRIED:  # this log may tell of an execution: the id is never tried again
            runs.mark_stop_requested(conn, clash.run_id, now_ns)
        return None
    serial = run.serial
    taken = conn.execute(SQL_SERIAL_TAKEN, (serial,)).fetchone()
    if taken is not None:
        report.conflicts.append(Conflict(run.run_id, "serial_taken", str(taken[0])))
        serial = meta.next_serial(conn)  # only an order; the log is found by its shard
    intent = _intent(run, run.attempts[0], serial)
    runs.insert(conn, intent, feed.RECOVER, now_ns)
    return new_row(intent, now_ns)


def _closed_to_retry(row: RunRow) -> bool:
    return row.stop_requested or (row.state in SETTLED_STATES and not row.may_retry)


def _next_attempt(
    conn: sqlite3.Connection, row: RunRow, run: RecoveredRun, attempt: RecoveredAttempt, now_ns: int
) -> RunRow:
    if row.state is not RunState.NOT_STARTED:
        row = runs.transition(
            conn, row.run_id, Trigger.REFUSE, row.state, now_ns, reason=SUPERSEDED, retryable=True
        )
    step = _intent(run, attempt, row.serial)._replace(attempt=row.attempt + 1)
    return runs.retry(conn, row, step, now_ns)


def _settle(conn: sqlite3.Connection, row: RunRow, run: RecoveredRun, now_ns: int) -> RunRow:
    if row.state in SETTLED_STATES:
        return row
    row = runs.set_processes(conn, row.run_id, row.attempt, now_ns, worker=run.worker, program=run.program)
    if run.stop_requested:
        row = runs.mark_stop_requested(conn, row.run_id, now_ns)
    trigger = _TRIGGERS.get(run.state)
    if trigger is None or (run.state is row.state and run.reason == row.reason):
        return row
    return runs.transition(
        conn,
        row.run_id,
        trigger,
        row.state,
        run.ended_ns or now_ns,
        reason=run.reason,
        outcome=run.outcome,
        receipt=run.receipt,
        evidence=run.evidence,
        retryable=run.retryable,
    )


def _intent(run: RecoveredRun, attempt: RecoveredAttempt, serial: int) -> Intent:
    return Intent(
        serial=serial,
        run_id=run.run_id,
        shard=run.shard,
        owner=run.owner,
        request_id=run.request_id,
        argv=run.argv,
        cwd=run.cwd,
        limits=run.limits,
        completion=run.completion,
        digests=run.digests,
        key_id=run.key_id,
        boot_id=attempt.boot_id,
        now_ns=attempt.intent_ns,
        labels=run.labels,
        env_names=run.env_names,
        nested_in=run.nested_in,
        survives_unit_restart=run.survives_unit_restart,
        attempt=attempt.attempt,
        first_seq=attempt.first_seq,
        priority=run.priority,
    )
