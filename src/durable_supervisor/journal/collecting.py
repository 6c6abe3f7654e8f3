"""Turn rows into tombstones.  Every function takes a connection and runs in its transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..model.states import RunState
from . import meta, runs
from .rows import Document, RunRow, decode, encode, run_row
from .tombstones import Tombstone

if TYPE_CHECKING:
    from .recover import Rebuilt, RecoveredRun

BEGUN = "collecting"  # meta: when runs were last chosen, Unix nanoseconds

SQL_KEPT = """
SELECT runs.serial, run_id, request_id, shard, state, attempt, retryable, stop_requested, outcome, labels,
    coalesce(ended_ns, updated_ns)
FROM (SELECT serial FROM runs_kept WHERE serial > ? ORDER BY serial LIMIT ?) AS page
CROSS JOIN runs ON runs.serial = page.serial ORDER BY page.serial
"""
SQL_COLLECT = """
UPDATE runs SET
    collected_ns = ?, argv = '[]', cwd = '""', env_names = '[]', labels = '{}',
    worker = NULL, program = NULL, receipt = NULL, evidence = NULL, log_health = NULL
WHERE run_id = ? AND collected_ns IS NULL
"""
SQL_DELETE_LABEL = "DELETE FROM run_labels WHERE name = ? AND value = ? AND serial = ?"
SQL_ADD_UNSWEPT = "INSERT INTO unswept (serial) VALUES (?) ON CONFLICT (serial) DO NOTHING"
SQL_UNSWEPT = """
SELECT runs.* FROM unswept CROSS JOIN runs ON runs.serial = unswept.serial
WHERE unswept.serial > ? ORDER BY unswept.serial LIMIT ?
"""
SQL_SWEPT = "DELETE FROM unswept WHERE serial = ?"
SQL_COLLECTED = """
SELECT * FROM runs WHERE collected_ns IS NOT NULL AND serial > ? ORDER BY serial LIMIT ?
"""


class KeptRun(NamedTuple):
    """What matters about a run for whether it may be collected."""

    serial: int
    run_id: str
    request_id: str
    shard: str
    state: RunState
    attempt: int
    may_retry: bool
    outcome: Document | None
    labels: dict[str, str]
    ended_ns: int  # of one that is over


def kept_runs(conn: sqlite3.Connection, after_serial: int, limit: int) -> list[KeptRun]:
    """Runs with a greater serial that are not collected, oldest first."""
    return [
        KeptRun(
            serial, run_id, request_id, shard, RunState(state), attempt,
            state == RunState.NOT_STARTED.value and bool(retryable) and not stop_requested,
            None if outcome is None else decode(outcome), decode(labels), ended_ns,
        )
        for serial, run_id, request_id, shard, state, attempt, retryable, stop_requested, outcome, labels,
        ended_ns in conn.execute(SQL_KEPT, (after_serial, limit))
    ]  # fmt: skip


def may_collect(row: RunRow) -> bool:
    """Is it over, known, and never tried again?  Nothing can change such a row any more."""
    over = row.state in (RunState.FINISHED, RunState.NOT_STARTED)
    return over and not row.may_retry and not row.collected


def choose(
    conn: sqlite3.Connection, run_ids: Iterable[str], directory_id: str, now_ns: int
) -> list[Tombstone]:
    """The tombstones of those that may still be collected.

    In a durable transaction: what a tombstone says must not be taken back by a power loss, and a
    state that was folded from a log may be, until something is written behind it.
    """
    meta.put(conn, BEGUN, str(now_ns))
    rows = [row for row in (runs.get(conn, run_id) for run_id in run_ids) if row is not None]
    return [Tombstone.of(conn, row, directory_id, now_ns) for row in rows if may_collect(row)]


def collect(conn: sqlite3.Connection, stones: Sequence[Tombstone], mark: str | None) -> list[RunRow]:
    """Empty the rows of these runs; answers with those that were not collected yet.

    ``mark`` (None: leave it) is the last line of ``collected.log`` that the journal knows by now.
    Raises sqlite3.IntegrityError for a run that is not over.
    """
    collected = []
    for stone in stones:
        row = runs.get(conn, stone.run.run_id)
        if row is None or row.collected:
            continue
        for name, value in row.labels.items():
            conn.execute(SQL_DELETE_LABEL, (encode(name), encode(value), row.serial))
        conn.execute(SQL_COLLECT, (stone.collected_ns, row.run_id))
        conn.execute(SQL_ADD_UNSWEPT, (row.serial,))
        collected.append(row)
    if mark is not None:
        meta.put(conn, meta.COLLECTED_LOG, mark)
    return collected


def unswept(conn: sqlite3.Connection, after_serial: int, limit: int) -> list[RunRow]:
    """Collected runs whose files may still be there, oldest first."""
    return [run_row(row) for row in conn.execute(SQL_UNSWEPT, (after_serial, limit))]


def swept(conn: sqlite3.Connection, serials: Iterable[int]) -> None:
    """Their files are gone."""
    conn.executemany(SQL_SWEPT, [(serial,) for serial in serials])


def collected_runs(
    conn: sqlite3.Connection, directory_id: str, after_serial: int, limit: int
) -> list[Tombstone]:
    """What ``collected.log`` should hold of the runs with a greater serial, oldest first."""
    rows = [run_row(row) for row in conn.execute(SQL_COLLECTED, (after_serial, limit))]
    return [Tombstone.of(conn, row, directory_id, row.collected_ns or 0) for row in rows]


def rebuild_collected(
    conn: sqlite3.Connection,
    logs: Iterable[RecoveredRun],
    stones: Sequence[Tombstone],
    mark: str | None,
    now_ns: int,
) -> Rebuilt:
    """As `recover.rebuild`, of runs with a log and of collected ones; idempotent.

    Of one that has both, the log may be half gone: its tombstone alone counts.
    """
    from .recover import Conflict, rebuild  # no start pays for it

    newest = {stone.run.run_id: stone for stone in stones}
    whole = [run for run in logs if run.run_id not in newest]
    report = rebuild(conn, [*whole, *(stone.run for stone in newest.values())], now_ns)
    told = {one.run_id for one in report.conflicts}
    explained = []
    for stone in newest.values():
        if stone.explains(runs.get(conn, stone.run.run_id)):
            explained.append(stone)
        elif stone.run.run_id not in told:
            report.conflicts.append(Conflict(stone.run.run_id, "settled"))
    collect(conn, explained, mark)
    return report
