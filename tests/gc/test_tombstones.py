"""The rows that are left of collected runs, and SQL's own guards around them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from durable_supervisor.journal import collecting, runs
from durable_supervisor.journal.listing import list_runs
from durable_supervisor.journal.recover import rebuild
from durable_supervisor.journal.rows import RunRow
from durable_supervisor.journal.tombstones import Tombstone
from durable_supervisor.model.outcome import Outcome, OutcomeKind
from durable_supervisor.model.states import RunState, Trigger
from tests.unit.journal_helpers import DIGESTS, intent, migrated

S, T = RunState, Trigger
EXITED = Outcome(OutcomeKind.EXITED, 3)
LABELS = {"team": "infra", "k": "\udcff"}


@pytest.fixture
def conn(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    conn = migrated(tmp_path / "journal.db")
    yield conn
    conn.close()


def reach(conn: sqlite3.Connection, serial: int, state: RunState, *, stopped: bool = False) -> RunRow:
    """A run in this state; of a not_started one: retryable, unless its owner stopped it."""
    row = runs.admit(conn, intent(serial, labels=LABELS)).row
    steps = {S.FINISHED: T.FINISH, S.NOT_STARTED: T.REFUSE, S.UNKNOWN: T.LOSE, S.QUARANTINED: T.QUARANTINE}
    if state in steps:
        runs.transition(
            conn, row.run_id, steps[state], S.STARTING, 20,
            reason=None if state is S.FINISHED else "why",
            outcome=EXITED if state is S.FINISHED else None,
            receipt={"duration": 1} if state is S.FINISHED else None,
            retryable=state is S.NOT_STARTED,
            worker={"pid": 1},
        )  # fmt: skip
    if stopped:
        runs.mark_stop_requested(conn, row.run_id, 21)
    found = runs.get(conn, row.run_id)
    assert found is not None
    return found


def collect(conn: sqlite3.Connection, *rows: RunRow, at: int = 99) -> list[Tombstone]:
    stones = collecting.choose(conn, [row.run_id for row in rows], "dir-1", at)
    collecting.collect(conn, stones, "0:1:x")
    return stones


def get(conn: sqlite3.Connection, row: RunRow) -> RunRow:
    found = runs.get(conn, row.run_id)
    assert found is not None
    return found


def test_a_tombstone_keeps_what_answers_a_late_repeat(conn: sqlite3.Connection) -> None:
    row = reach(conn, 1, S.FINISHED)
    collect(conn, row)
    left = get(conn, row)
    assert (left.argv, left.cwd, left.env_names, left.labels) == ([], "", [], {})
    assert (left.worker, left.receipt, left.evidence, left.log_health) == (None, None, None, None)
    for name in ("serial", "run_id", "owner", "request_id", "digests", "key_id", "state", "attempt",
                 "outcome", "created_ns", "updated_ns", "limits", "shard"):  # fmt: skip
        assert getattr(left, name) == getattr(row, name)
    assert left.collected_ns == 99
    again = runs.admit(conn, intent(7, request_id=row.request_id))
    assert (again.kind, again.row.run_id, again.row.outcome) == ("existing", row.run_id, EXITED.to_dict())
    other = runs.admit(conn, intent(8, request_id=row.request_id, digests=DIGESTS | {"argv": "x"}))
    assert (other.kind, other.differing) == ("conflict", ["argv"])


def test_only_what_is_over_for_good_is_chosen(conn: sqlite3.Connection) -> None:
    rows = {
        name: reach(conn, serial, state, stopped=stopped)
        for serial, (name, state, stopped) in enumerate(
            [
                ("finished", S.FINISHED, False),
                ("stopped", S.NOT_STARTED, True),
                ("retryable", S.NOT_STARTED, False),
                ("starting", S.STARTING, False),
                ("unknown", S.UNKNOWN, False),
                ("quarantined", S.QUARANTINED, False),
            ],
            1,
        )
    }
    stones = collect(conn, *rows.values())
    assert [stone.run.run_id for stone in stones] == [rows["finished"].run_id, rows["stopped"].run_id]
    assert collect(conn, *rows.values()) == []
    assert [row.serial for row in list_runs(conn)] == [6, 5, 4, 3]
    assert [row.serial for row in list_runs(conn, collected=True)] == [6, 5, 4, 3, 2, 1]
    assert [row.serial for row in list_runs(conn, collected=True, states=[S.FINISHED])] == [1]
    assert [row.serial for row in list_runs(conn, states=[S.FINISHED, S.NOT_STARTED])] == [3]
    assert [row.serial for row in list_runs(conn, owner="local")] == [6, 5, 4, 3]
    assert [row.serial for row in list_runs(conn, label=("team", "infra"))] == [6, 5, 4, 3]


@pytest.mark.parametrize("state", [S.STARTING, S.NOT_STARTED, S.UNKNOWN, S.QUARANTINED])
def test_sql_itself_collects_nothing_else(conn: sqlite3.Connection, state: RunState) -> None:
    row = reach(conn, 1, state)
    with pytest.raises(sqlite3.IntegrityError, match="only a run that is over"):
        conn.execute(collecting.SQL_COLLECT, (5, row.run_id))
    assert get(conn, row) == row


@pytest.mark.parametrize(
    "change",
    [
        "argv = '[]'",
        "argv = '[]', cwd = '\"\"', env_names = '[]', labels = '{}'",
        "receipt = NULL",
        "worker = NULL",
        "collected_ns = 5, argv = '[\"other\"]', cwd = '\"\"', env_names = '[]', labels = '{}'",
        "collected_ns = 5, worker = '{}'",
        "collected_ns = 5, outcome = '{}'",
        "collected_ns = 5, digests = '{}'",
        "collected_ns = 5, request_id = 'mine'",
        "collected_ns = 5, state = 'unknown', reason = 'x', outcome = NULL",
    ],
)
def test_nothing_else_of_a_run_may_change_with_it(conn: sqlite3.Connection, change: str) -> None:
    row = reach(conn, 1, S.FINISHED)
    with pytest.raises(sqlite3.IntegrityError):
        conn.execute(f"UPDATE runs SET {change} WHERE run_id = ?", (row.run_id,))
    assert get(conn, row) == row


@pytest.mark.parametrize(
    "change",
    ["collected_ns = NULL", "collected_ns = 100", "log_health = '{}'", "updated_ns = 1", "argv = '[]'"],
)
def test_a_tombstone_never_changes(conn: sqlite3.Connection, change: str) -> None:
    row = reach(conn, 1, S.FINISHED)
    collect(conn, row)
    left = get(conn, row)
    with pytest.raises(sqlite3.IntegrityError):
        conn.execute(f"UPDATE runs SET {change} WHERE run_id = ?", (row.run_id,))
    with pytest.raises(sqlite3.IntegrityError):
        conn.execute("DELETE FROM runs WHERE run_id = ?", (row.run_id,))
    assert runs.mark_stop_requested(conn, row.run_id, 200) == left
    assert runs.set_log_health(conn, row.run_id, {"status": "missing"}, 200) == left


@pytest.mark.parametrize("stopped", [False, True])
def test_rows_are_made_anew_from_their_tombstones(
    conn: sqlite3.Connection, tmp_path: Path, stopped: bool
) -> None:
    state = S.NOT_STARTED if stopped else S.FINISHED
    row = reach(conn, 4, state, stopped=stopped)
    [stone] = collect(conn, row)
    assert Tombstone.from_dict(stone.to_dict()) == stone
    with_loss = migrated(tmp_path / "new.db")
    for _ in range(2):
        report = rebuild(with_loss, [Tombstone.from_dict(stone.to_dict()).run], 500)
        collecting.collect(with_loss, [stone], None)
        assert report.conflicts == []
    # When it ended is known; when it was last touched (by a stop, say) is not.
    ended = runs.attempts(with_loss, row.serial)[-1].ended_ns
    assert ended == runs.attempts(conn, row.serial)[-1].ended_ns == 20
    assert get(with_loss, row)._replace(updated_ns=0) == get(conn, row)._replace(updated_ns=0)
    again = runs.admit(with_loss, intent(9, request_id=row.request_id))
    assert (again.kind, again.row.run_id) == ("existing", row.run_id)
    with_loss.close()


def test_what_is_unswept_is_known_until_it_is_gone(conn: sqlite3.Connection) -> None:
    rows = [reach(conn, serial, S.FINISHED) for serial in (1, 2, 3)]
    collect(conn, *rows)
    assert [row.serial for row in collecting.unswept(conn, 0, 2)] == [1, 2]
    collecting.swept(conn, [1, 3])
    assert [row.serial for row in collecting.unswept(conn, 0, 9)] == [2]
    assert [stone.run.serial for stone in collecting.collected_runs(conn, "dir-1", 1, 9)] == [2, 3]
