"""Admit, read and move runs.  Every function takes a connection and runs in its transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Unpack

from ..model.digest import differing_fields
from ..model.errors import ErrorCode, Phase, SupervisorError
from ..model.errors import unknown_run as unknown_run  # offered here, beside `get`
from ..model.states import SETTLED_STATES, RunState, Trigger
from . import feed, migrate
from .advance import Facts, advance
from .errors import StaleState
from .rows import (
    Admission,
    AttemptRow,
    Document,
    Intent,
    RunRow,
    encode,
    encode_optional,
    run_row,
)

SQL_FIND_REQUEST = "SELECT * FROM runs WHERE owner = ? AND request_id = ?"
SQL_GET = "SELECT * FROM runs WHERE run_id = ?"
SQL_BY_PREFIX = """
SELECT run_id FROM runs
WHERE run_id >= ? AND run_id < ? AND (? IS NULL OR owner = ?) ORDER BY run_id LIMIT ?
"""
SQL_INSERT = """
INSERT INTO runs (
    serial, run_id, shard, owner, request_id, state, attempt, argv, cwd, env_names, labels, limits,
    completion, digests, key_id, nested_in, survives_unit_restart, created_ns, updated_ns, boot_id,
    priority, intent_ns, first_seq
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
SQL_INSERT_LABEL = "INSERT INTO run_labels (name, value, serial) VALUES (?, ?, ?)"
# Of a run that `SQL_RETRY` is about to let tell of the next one, and of no other.
SQL_KEEP_ATTEMPT = """
INSERT INTO attempts (serial, attempt, intent_ns, boot_id, first_seq, ended_ns, ended_state, reason)
SELECT serial, attempt, intent_ns, boot_id, first_seq, ended_ns, state, reason
FROM runs
WHERE run_id = ? AND state = 'not_started' AND attempt = ? AND retryable = 1 AND stop_requested = 0
"""
SQL_EARLIER_ATTEMPTS = """
SELECT attempt, intent_ns, boot_id, first_seq, ended_ns, ended_state, reason
FROM attempts WHERE serial = ? ORDER BY attempt
"""
SQL_CURRENT_ATTEMPT = """
SELECT attempt, intent_ns, boot_id, first_seq, ended_ns, state, reason FROM runs WHERE serial = ?
"""
SQL_RETRY = """
UPDATE runs SET
    state = ?, priority = ?, attempt = ?, intent_ns = ?, first_seq = ?, boot_id = ?, updated_ns = ?,
    survives_unit_restart = ?, ended_ns = NULL, worker = NULL, program = NULL, reason = NULL, outcome = NULL,
    receipt = NULL, evidence = NULL, retryable = 0, log_health = NULL
WHERE run_id = ? AND state = 'not_started' AND attempt = ? AND retryable = 1 AND stop_requested = 0
RETURNING *
"""
SQL_STOP = "UPDATE runs SET stop_requested = 1, updated_ns = ? WHERE run_id = ? RETURNING *"
SQL_PROCESSES = """
UPDATE runs SET worker = coalesce(?, worker), program = coalesce(?, program), updated_ns = ?
WHERE run_id = ? AND attempt = ?
RETURNING *
"""
SQL_LOG_HEALTH = "UPDATE runs SET log_health = ?, updated_ns = ? WHERE run_id = ? RETURNING *"
SQL_RESOLUTION = "UPDATE runs SET resolution = ?, updated_ns = ? WHERE run_id = ? RETURNING *"
SQL_INSERT_RESOLUTION = "INSERT INTO resolutions (time_ns, serial, document) VALUES (?, ?, ?)"

KNOWS_CURRENT_ATTEMPT = 4  # the schema from which on ``attempts`` has the earlier ones alone

# Run ids are ASCII (model/ids.py), so this sorts after every id that begins with a prefix.
_AFTER_ANY = "\x7f"


def find_request(conn: sqlite3.Connection, owner: str, request_id: str) -> RunRow | None:
    """The run that this owner's request id stands for."""
    row = conn.execute(SQL_FIND_REQUEST, (owner, request_id)).fetchone()
    return None if row is None else run_row(row)


def get(conn: sqlite3.Connection, run_id: str) -> RunRow | None:
    """The run of this full id, or None."""
    if not run_id.isascii():
        return None  # also keeps lone surrogates away from SQLite, which refuses them
    row = conn.execute(SQL_GET, (run_id,)).fetchone()
    return None if row is None else run_row(row)


def by_prefix(conn: sqlite3.Connection, prefix: str, limit: int = 5, owner: str | None = None) -> list[str]:
    """Up to ``limit`` full ids that begin with ``prefix`` (in any case), in order; of one owner or all."""
    prefix = prefix.lower()
    if not prefix.isascii() or not prefix.isalnum():
        return []
    values = (prefix, prefix + _AFTER_ANY, owner, owner, limit)
    return [str(row[0]) for row in conn.execute(SQL_BY_PREFIX, values)]


def preview(
    conn: sqlite3.Connection, owner: str, request_id: str, digests: Mapping[str, str], key_id: str
) -> Admission | None:
    """What `admit` would say of a known request id; None for a new one.  Writes nothing."""
    row = find_request(conn, owner, request_id)
    if row is None:
        return None
    differing = ["key_id"] if row.key_id != key_id else differing_fields(row.digests, digests)
    if differing:
        return Admission("conflict", row, differing)
    return Admission("retryable" if row.may_retry else "existing", row)


def admit(conn: sqlite3.Connection, intent: Intent) -> Admission:
    """Write the intent, unless its request id already stands for a run (see `Admission`)."""
    known = preview(conn, intent.owner, intent.request_id, intent.digests, intent.key_id)
    return admit_known(conn, intent, known)


def admit_known(conn: sqlite3.Connection, intent: Intent, known: Admission | None) -> Admission:
    """`admit`, by what `preview` has said in this transaction."""
    if known is None:
        if intent.attempt != 1:
            raise ValueError("a request that the journal does not know has no earlier attempt")
        insert(conn, intent, feed.ADMIT, intent.now_ns)
        return Admission("new", intent)
    row = known.row
    meant = intent.run_id == row.run_id and intent.attempt == row.attempt + 1
    if known.kind != "retryable" or not meant:
        return known
    return Admission("retry", retry(conn, row, intent, intent.now_ns))


def insert(conn: sqlite3.Connection, intent: Intent, trigger: str, now_ns: int) -> None:
    """A new row with its labels and feed entry (``trigger`` is the feed's word for it)."""
    if intent.state not in (RunState.QUEUED, RunState.STARTING):
        raise ValueError("an intent is queued or starting")
    values = (
        intent.serial, intent.run_id, intent.shard, intent.owner, intent.request_id, str(intent.state),
        intent.attempt, encode(list(intent.argv)), encode(intent.cwd),
        encode(list(intent.env_names)) if intent.env_names else "[]",
        encode(dict(intent.labels)) if intent.labels else "{}", encode(dict(intent.limits)),
        intent.completion, encode(dict(intent.digests)), intent.key_id, intent.nested_in,
        intent.survives_unit_restart, intent.now_ns, now_ns, intent.boot_id, intent.priority,
        intent.now_ns, intent.first_seq,
    )  # fmt: skip
    conn.execute(SQL_INSERT, values)
    for name, value in intent.labels.items():
        conn.execute(SQL_INSERT_LABEL, (encode(name), encode(value), intent.serial))
    feed.append(conn, intent.serial, intent.attempt, intent.state, trigger, None, now_ns)


def retry(conn: sqlite3.Connection, row: RunRow, intent: Intent, now_ns: int) -> RunRow:
    """The next attempt of a retryable not_started run (callers: `admit`).  Raises `StaleState`."""
    values = (
        intent.state.value, intent.priority, intent.attempt, intent.now_ns, intent.first_seq, intent.boot_id,
        now_ns, intent.survives_unit_restart, row.run_id, row.attempt,
    )  # fmt: skip
    conn.execute(SQL_KEEP_ATTEMPT, (row.run_id, row.attempt))
    found = conn.execute(SQL_RETRY, values).fetchone()
    if found is None:
        raise StaleState(row.run_id, RunState.NOT_STARTED, _need(conn, row.run_id).state)
    retried = run_row(found)
    trigger = Trigger.REQUEUE if retried.state is RunState.QUEUED else Trigger.RETRY
    feed.append(conn, row.serial, retried.attempt, retried.state, trigger.value, None, now_ns)
    return retried


def attempts(conn: sqlite3.Connection, serial: int) -> list[AttemptRow]:
    """Every attempt of a run, oldest first."""
    found = [AttemptRow(*row) for row in conn.execute(SQL_EARLIER_ATTEMPTS, (serial,))]
    if migrate.schema_version(conn) < KNOWS_CURRENT_ATTEMPT:
        return found
    for row in conn.execute(SQL_CURRENT_ATTEMPT, (serial,)):
        current = AttemptRow(*row)
        over = current.ended_state in SETTLED_STATES
        found.append(current if over else current._replace(ended_state=None, reason=None))
    return found


def transition(
    conn: sqlite3.Connection,
    run_id: str,
    trigger: Trigger,
    expect: RunState,
    now_ns: int,
    **facts: Unpack[Facts],
) -> RunRow:
    """`advance` for a caller that holds no row, and knows the state that it must be in.

    Raises `StaleState` where it is another, SupervisorError ``UNKNOWN_RUN``, and as `advance`.
    """
    row = _need(conn, run_id)
    if row.state is not expect:
        raise StaleState(run_id, expect, row.state)
    return advance(conn, row, trigger, now_ns, **facts)


def mark_stop_requested(conn: sqlite3.Connection, run_id: str, now_ns: int) -> RunRow:
    """Its owner wants it stopped, so it is never retried.  A finished or unknown run stays as it is."""
    row = _need(conn, run_id)
    if row.stop_requested or row.collected or row.state in (RunState.FINISHED, RunState.UNKNOWN):
        return row
    return run_row(conn.execute(SQL_STOP, (now_ns, run_id)).fetchone())


def set_processes(
    conn: sqlite3.Connection,
    run_id: str,
    attempt: int,
    now_ns: int,
    *,
    worker: Document | None = None,
    program: Document | None = None,
) -> RunRow:
    """Keep the identities that the log gave; a settled run, or another attempt, stays as it is."""
    row = _need(conn, run_id)
    same = worker in (None, row.worker) and program in (None, row.program)
    if row.state in SETTLED_STATES or row.attempt != attempt or same:
        return row
    values = (encode_optional(worker), encode_optional(program), now_ns, run_id, attempt)
    return run_row(conn.execute(SQL_PROCESSES, values).fetchone())


def set_log_health(conn: sqlite3.Connection, run_id: str, health: Document | None, now_ns: int) -> RunRow:
    """Damage found in the log, in any state; unchanged news is not written again."""
    row = _need(conn, run_id)
    if row.log_health == health or row.collected:
        return row
    return run_row(conn.execute(SQL_LOG_HEALTH, (encode_optional(health), now_ns, run_id)).fetchone())


def set_resolution(conn: sqlite3.Connection, run_id: str, document: Document, now_ns: int) -> RunRow:
    """An operator's word: kept for ever in ``resolutions``, the newest in the row.

    Raises SupervisorError ``NOT_RESOLVABLE`` unless the run is unknown or quarantined.
    """
    row = _need(conn, run_id)
    if row.state not in (RunState.UNKNOWN, RunState.QUARANTINED):
        raise not_resolvable(run_id, row.state)
    text = encode(document)
    conn.execute(SQL_INSERT_RESOLUTION, (now_ns, row.serial, text))
    return run_row(conn.execute(SQL_RESOLUTION, (text, now_ns, run_id)).fetchone())


def _need(conn: sqlite3.Connection, run_id: str) -> RunRow:
    row = get(conn, run_id)
    if row is None:
        raise unknown_run(run_id)
    return row


def not_resolvable(run_id: str, state: RunState) -> SupervisorError:
    """``NOT_RESOLVABLE``: what is known needs no operator's word."""
    return SupervisorError(
        ErrorCode.NOT_RESOLVABLE,
        f"run {run_id} is {state.value}; only an unknown or quarantined run can be resolved",
        phase=Phase.CONTROL,
        hint="`inspect` shows what is known about it",
        details={"run_id": run_id, "state": state.value},
    )
