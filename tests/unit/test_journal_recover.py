"""Rows rebuilt from what the logs say: lost journals, old journals, contradictions."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from durable_supervisor.journal import feed, meta, runs
from durable_supervisor.journal.recover import Conflict, RecoveredAttempt, RecoveredRun, rebuild
from durable_supervisor.journal.rows import RunRow
from durable_supervisor.model.outcome import Outcome, OutcomeKind
from durable_supervisor.model.states import RunState, Trigger
from tests.unit.journal_helpers import intent, migrated

S, T = RunState, Trigger
EXITED = Outcome(OutcomeKind.EXITED, 0)


@pytest.fixture
def conn(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    conn = migrated(tmp_path / "journal.db")
    yield conn
    conn.close()


def attempt(number: int) -> RecoveredAttempt:
    return RecoveredAttempt(number, 1000 + number, f"boot-{number}", number * 10 - 9)


def logged(serial: int, attempts: int = 1, **changes: Any) -> RecoveredRun:
    source = intent(serial)
    names = set(RecoveredRun.__dataclass_fields__) & set(source._fields)
    values: dict[str, Any] = {name: getattr(source, name) for name in names}
    values["attempts"] = [attempt(number) for number in range(1, attempts + 1)]
    return RecoveredRun(**(values | changes))


def row_of(conn: sqlite3.Connection, serial: int) -> RunRow:
    row = runs.get(conn, intent(serial).run_id)
    assert row is not None
    return row


def test_a_lost_journal_comes_back(conn: sqlite3.Connection) -> None:
    logs = [
        logged(3, state=S.FINISHED, outcome=EXITED, receipt={"x": 1}),
        logged(1, labels={"a": "b"}),
        logged(2, attempts=3, worker={"pid": 7}),
        logged(4, state=S.UNKNOWN, reason="program_gone", evidence={"e": 1}),
        logged(5, state=S.NOT_STARTED, reason="ENOENT", stop_requested=True, retryable=True),
    ]
    report = rebuild(conn, iter(logs), 5000)
    assert report.added == [intent(serial).run_id for serial in range(1, 6)]
    assert (row_of(conn, 1).state, row_of(conn, 1).labels) == (S.STARTING, {"a": "b"})
    second = row_of(conn, 2)
    assert (second.attempt, second.boot_id, second.state) == (3, "boot-3", S.STARTING)
    assert second.worker == {"pid": 7}
    assert [a.first_seq for a in runs.attempts(conn, 2)] == [1, 11, 21]
    assert (row_of(conn, 3).outcome, row_of(conn, 3).receipt) == (EXITED.to_dict(), {"x": 1})
    assert (row_of(conn, 4).state, row_of(conn, 4).reason) == (S.UNKNOWN, "program_gone")
    assert not row_of(conn, 5).may_retry
    assert meta.next_serial(conn) == 6
    for serial in range(1, 6):  # every id answers with its run
        assert runs.admit(conn, intent(90, request_id=f"req-{serial}")).row.serial == serial


def test_recovering_twice_changes_nothing(conn: sqlite3.Connection) -> None:
    logs = [logged(1), logged(2, 2), logged(3, state=S.QUARANTINED, reason="alive", evidence={"pid": 1})]
    rebuild(conn, logs, 5000)
    before, head = [row_of(conn, n) for n in (1, 2, 3)], feed.head(conn)
    report = rebuild(conn, logs, 6000)
    assert (report.added, report.advanced, len(report.kept)) == ([], [], 3)
    assert [row_of(conn, n) for n in (1, 2, 3)] == before
    assert feed.head(conn) == head


def test_an_old_backup_is_brought_forward(conn: sqlite3.Connection) -> None:
    for serial in (1, 2, 3):
        runs.admit(conn, intent(serial))
    runs.transition(conn, intent(2).run_id, T.REFUSE, S.STARTING, 9, reason="worker_lost", retryable=True)
    runs.transition(conn, intent(3).run_id, T.FINISH, S.STARTING, 9, outcome=EXITED)
    third = row_of(conn, 3)
    report = rebuild(
        conn, [logged(1, 2), logged(2, 2, state=S.FINISHED, outcome=EXITED), logged(3), logged(4)], 5000
    )
    assert report.advanced == [intent(1).run_id, intent(2).run_id]
    assert (report.kept, report.added) == ([intent(3).run_id], [intent(4).run_id])
    assert (row_of(conn, 1).attempt, row_of(conn, 1).state) == (2, S.STARTING)
    assert runs.attempts(conn, 1)[0].reason == "superseded_attempt"
    assert (row_of(conn, 2).attempt, row_of(conn, 2).state) == (2, S.FINISHED)
    assert row_of(conn, 3) == third


def test_contradictions_are_named_and_change_no_row(conn: sqlite3.Connection) -> None:
    for serial in (1, 2):
        runs.admit(conn, intent(serial))
    runs.transition(conn, intent(1).run_id, T.FINISH, S.STARTING, 9, outcome=EXITED)
    runs.mark_stop_requested(conn, intent(2).run_id, 9)
    before = [row_of(conn, n) for n in (1, 2)]
    other = logged(9, request_id="req-1")
    report = rebuild(conn, [logged(1, 2), logged(2, 2), other], 5000)
    assert report.conflicts == [
        Conflict(intent(1).run_id, "settled"),
        Conflict(intent(2).run_id, "settled"),
        Conflict(intent(9).run_id, "request_id_taken", intent(1).run_id),
    ]
    assert [row_of(conn, n) for n in (1, 2)] == before


def test_two_logs_of_one_request_id_leave_nothing_to_retry(conn: sqlite3.Connection) -> None:
    """The first was never dispatched, the second was executed: neither may be executed again."""
    rebuild(conn, [logged(1), logged(2, request_id="req-1", state=S.FINISHED, outcome=EXITED)], 5000)
    row = runs.transition(conn, intent(1).run_id, T.REFUSE, S.STARTING, 9, reason="lost", retryable=True)
    assert not row.may_retry


def test_a_serial_in_use_gives_way(conn: sqlite3.Connection) -> None:
    runs.admit(conn, intent(1))
    report = rebuild(conn, [logged(1, run_id="othe" * 4, request_id="other", shard="0000")], 5000)
    assert report.added == ["othe" * 4]
    assert report.conflicts == [Conflict("othe" * 4, "serial_taken", intent(1).run_id)]
    moved = runs.get(conn, "othe" * 4)
    assert moved is not None
    assert (moved.serial, moved.shard) == (2, "0000")


def test_a_run_whose_first_logs_are_gone(conn: sqlite3.Connection) -> None:
    rebuild(conn, [replace(logged(1), attempts=[attempt(2)])], 5000)
    assert row_of(conn, 1).attempt == 2
    rebuild(conn, [replace(logged(1), attempts=[attempt(5)])], 6000)
    assert (row_of(conn, 1).attempt, row_of(conn, 1).boot_id) == (5, "boot-5")
    with pytest.raises(ValueError, match="no attempt"):
        rebuild(conn, [replace(logged(2), attempts=[])], 5000)
