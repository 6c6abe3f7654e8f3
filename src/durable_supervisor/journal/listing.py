"""Pages of runs, newest first, by keyset: no page costs more because there are more runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator

from ..model.named_tuple import NamedTuple
from ..model.states import RunState
from . import migrate
from .rows import Document, RunRow, decode, encode, run_row

SQL_NEWEST = "SELECT * FROM runs WHERE serial < ? ORDER BY serial DESC LIMIT ?"
# Collected runs have no labels.
SQL_BY_LABEL = """
SELECT runs.* FROM run_labels CROSS JOIN runs ON runs.serial = run_labels.serial
WHERE run_labels.name = ? AND run_labels.value = ? AND run_labels.serial < ?
ORDER BY run_labels.serial DESC LIMIT ?
"""
# The serials of the page first, so that no more rows than it has are read; what is sorted is the page.
SQL_NEWEST_KEPT = """
SELECT runs.*
FROM (SELECT serial FROM runs_kept WHERE serial < ? ORDER BY serial DESC LIMIT ?) AS page
CROSS JOIN runs ON runs.serial = page.serial ORDER BY page.serial DESC
"""
SQL_KEPT_BY_STATE = """
SELECT * FROM runs WHERE state = ? AND collected_ns IS NULL AND serial < ? ORDER BY serial DESC LIMIT ?
"""
SQL_KEPT_BY_OWNER = """
SELECT * FROM runs WHERE owner = ? AND collected_ns IS NULL AND serial < ? ORDER BY serial DESC LIMIT ?
"""
# Sorts the serials of those that are not over, and no row.  The WHERE repeats the index's own, or SQLite
# could not use the partial index; named, or the planner would walk all runs.
SQL_JUDGED = """
SELECT runs.*
FROM (
    SELECT serial FROM runs INDEXED BY runs_by_state
    WHERE state IN ('queued', 'starting', 'running', 'stopping', 'quarantined') AND collected_ns IS NULL
        AND serial > ?
    ORDER BY serial LIMIT ?
) AS page
CROSS JOIN runs ON runs.serial = page.serial ORDER BY page.serial
"""
# Who may hold a slot: all that are judged, and unknown ones of this boot that nobody resolved.
SQL_SLOTS = """
SELECT run_id, owner, request_id, state, attempt, serial, priority, shard, boot_id, resolution, evidence,
    stop_requested
FROM runs INDEXED BY runs_by_state
WHERE state IN ('queued', 'starting', 'running', 'stopping', 'quarantined') AND collected_ns IS NULL
UNION ALL
SELECT run_id, owner, request_id, state, attempt, serial, priority, shard, boot_id, resolution, evidence,
    stop_requested
FROM runs INDEXED BY runs_unresolved
WHERE state = 'unknown' AND resolution IS NULL AND boot_id = ?
"""
SQL_ATTEMPTS_SINCE = "SELECT run_id, attempt FROM runs WHERE serial >= ?"

_TOP = (1 << 63) - 1
KNOWS_COLLECTED = 3  # the schema from which on runs can be collected
_KNOWS_KEPT = 4  # and that which can page those that are not


class SlotRow(NamedTuple):
    """What matters about a run for who holds a slot."""

    run_id: str
    owner: str
    request_id: str
    state: RunState
    attempt: int
    serial: int
    priority: int
    shard: str
    boot_id: str
    resolution: str | None
    evidence: Document | None
    stop_requested: bool


def list_runs(
    conn: sqlite3.Connection,
    *,
    before_serial: int | None = None,
    limit: int = 100,
    states: Collection[RunState] | None = None,
    label: tuple[str, str] | None = None,
    owner: str | None = None,
    collected: bool = False,
) -> list[RunRow]:
    """At most ``limit`` runs with a smaller serial, newest first; ``collected``: tombstones, too.

    Pass the last row's serial as ``before_serial`` for the next page; fewer than
    ``limit`` rows mean that there are no more.  With a label and states together
    the runs of that label are walked; with an owner and anything else those of that owner or label;
    with collected ones, and in a journal of an older schema, all are.
    """
    before = _TOP if before_serial is None else before_serial
    if states is not None and not states:
        return []
    if label is not None:
        name, value = encode(label[0]), encode(label[1])
        return _filtered(_walk(conn, SQL_BY_LABEL, (name, value), before, limit), limit, states, owner)
    if collected or migrate.schema_version(conn) < _KNOWS_KEPT:
        rows = (row for row in _walk(conn, SQL_NEWEST, (), before, limit) if collected or not row.collected)
        return _filtered(rows, limit, states, owner)
    if owner is not None:
        return _filtered(_walk(conn, SQL_KEPT_BY_OWNER, (owner,), before, limit), limit, states, None)
    if states is None:
        return [run_row(row) for row in conn.execute(SQL_NEWEST_KEPT, (before, limit))]
    import heapq  # a start lists nothing

    pages = (conn.execute(SQL_KEPT_BY_STATE, (state.value, before, limit)) for state in sorted(set(states)))
    merged = heapq.merge(*pages, key=lambda row: -row["serial"])
    return [run_row(row) for row, _ in zip(merged, range(limit), strict=False)]


def judged_runs(conn: sqlite3.Connection, after_serial: int = 0, limit: int = 500) -> list[RunRow]:
    """Open and quarantined runs with a greater serial, oldest first."""
    return [run_row(row) for row in conn.execute(SQL_JUDGED, (after_serial, limit))]


def all_judged(conn: sqlite3.Connection) -> list[RunRow]:
    """All of them."""
    found: list[RunRow] = []
    while page := judged_runs(conn, found[-1].serial if found else 0):
        found += page
    return found


def slot_rows(conn: sqlite3.Connection, boot_id: str) -> list[SlotRow]:
    """Every run that may hold a slot or wait for one, in no order."""
    return [
        SlotRow(
            run_id, owner, request_id, RunState(state), attempt, serial, priority, shard, boot_id, resolution,
            None if evidence is None else decode(evidence), bool(stop_requested),
        )
        for run_id, owner, request_id, state, attempt, serial, priority, shard, boot_id, resolution, evidence,
        stop_requested in conn.execute(SQL_SLOTS, (boot_id,))
    ]  # fmt: skip


def _filtered(
    rows: Iterator[RunRow], limit: int, states: Collection[RunState] | None, owner: str | None
) -> list[RunRow]:
    found: list[RunRow] = []
    for row in rows:
        if (states is None or row.state in states) and owner in (None, row.owner):
            found.append(row)
            if len(found) == limit:
                break
    return found


def _walk(
    conn: sqlite3.Connection, query: str, values: tuple[str, ...], before: int, limit: int
) -> Iterator[RunRow]:
    size = max(limit, 100)
    while True:
        page = [run_row(row) for row in conn.execute(query, (*values, before, size))]
        yield from page
        if len(page) < size:
            return
        before = page[-1].serial


def attempts_since(conn: sqlite3.Connection, serial: int) -> dict[str, int]:
    """``{run_id: attempt}`` of the runs with this serial or a greater one."""
    return {str(run_id): int(attempt) for run_id, attempt in conn.execute(SQL_ATTEMPTS_SINCE, (serial,))}
