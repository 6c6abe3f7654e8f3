"""Admission, transitions and reads, on a real SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from durable_supervisor.journal import feed, meta, runs
from durable_supervisor.journal.errors import StaleState, TransitionRefused
from durable_supervisor.journal.rows import RunRow
from durable_supervisor.model.errors import ErrorCode, SupervisorError
from durable_supervisor.model.outcome import Outcome, OutcomeKind
from durable_supervisor.model.states import RunState, Trigger
from tests.unit.journal_helpers import DIGESTS, intent, migrated

S, T = RunState, Trigger


@pytest.fixture
def conn(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    conn = migrated(tmp_path / "journal.db")
    yield conn
    conn.close()


def admitted(conn: sqlite3.Connection, serial: int = 1, **changes: object) -> RunRow:
    return runs.admit(conn, intent(serial, **changes)).row


def refused(conn: sqlite3.Connection, serial: int = 1, *, retryable: bool = True) -> RunRow:
    row = admitted(conn, serial)
    return runs.transition(
        conn, row.run_id, T.REFUSE, S.STARTING, 50, reason="worker_lost", retryable=retryable
    )


def test_a_new_request_is_written_as_asked(conn: sqlite3.Connection) -> None:
    labels = {"team": "db", "x/y": "\udc80 ü"}
    admission = runs.admit(
        conn,
        intent(7, argv=["prog", "a\udcffb", "é\n"], cwd="/tmp/\udc80 dir", labels=labels, env_names=["A"]),
    )
    assert admission.kind == "new"
    row = runs.get(conn, admission.row.run_id)
    assert row == admission.row
    assert row is not None
    assert (row.argv, row.cwd) == (["prog", "a\udcffb", "é\n"], "/tmp/\udc80 dir")
    assert (row.labels, row.env_names, row.state, row.attempt) == (labels, ["A"], S.STARTING, 1)
    assert (row.outcome, row.receipt, row.evidence, row.retryable) == (None, None, None, False)
    assert meta.next_serial(conn) == 8
    assert [entry.trigger for entry in feed.feed(conn)] == ["admit"]


def test_the_same_request_is_the_same_run(conn: sqlite3.Connection) -> None:
    first = admitted(conn)
    again = runs.admit(conn, intent(2, request_id="req-1"))
    assert (again.kind, again.row) == ("existing", first)
    assert runs.get(conn, intent(2).run_id) is None
    assert runs.admit(conn, intent(2, request_id="req-1", owner="other")).kind == "new"


def test_another_request_under_the_same_id_names_what_differs(conn: sqlite3.Connection) -> None:
    admitted(conn)
    changed = DIGESTS | {"cwd": "x", "stdin": "y"}
    answer = runs.admit(conn, intent(2, request_id="req-1", digests=changed))
    assert (answer.kind, answer.differing) == ("conflict", ["cwd", "stdin"])
    other_key = runs.admit(conn, intent(2, request_id="req-1", key_id="key-2"))
    assert (other_key.kind, other_key.differing) == ("conflict", ["key_id"])


def test_a_proven_not_started_is_retried_under_its_run_id(conn: sqlite3.Connection) -> None:
    row = refused(conn)
    assert runs.preview(conn, "local", "req-1", DIGESTS, "key-1").kind == "retryable"  # type: ignore[union-attr]
    # An intent that was prepared for a new run is told to prepare the next attempt.
    assert runs.admit(conn, intent(2, request_id="req-1")).kind == "retryable"
    answer = runs.admit(conn, intent(1, attempt=2, first_seq=9, boot_id="boot-2", now_ns=99))
    assert answer.kind == "retry"
    retried = answer.row
    assert (retried.run_id, retried.attempt, retried.state) == (row.run_id, 2, S.STARTING)
    assert (retried.boot_id, retried.reason, retried.retryable) == ("boot-2", None, False)
    ends = [(a.attempt, a.first_seq, a.ended_state, a.reason) for a in runs.attempts(conn, row.serial)]
    assert ends == [(1, 1, "not_started", "worker_lost"), (2, 9, None, None)]
    assert runs.admit(conn, intent(1, attempt=2)).kind == "existing"
    assert [e.trigger for e in feed.feed(conn)] == ["admit", "refuse", "retry"]


def test_no_retry_after_a_stop_or_without_the_proof(conn: sqlite3.Connection) -> None:
    stopped, final = refused(conn, 1), refused(conn, 2, retryable=False)
    runs.mark_stop_requested(conn, stopped.run_id, 60)
    for row in (stopped, final):
        answer = runs.admit(conn, intent(row.serial, attempt=2))
        assert (answer.kind, answer.row.attempt) == ("existing", 1)


def test_a_request_unknown_to_the_journal_has_no_second_attempt(conn: sqlite3.Connection) -> None:
    with pytest.raises(ValueError, match="earlier attempt"):
        runs.admit(conn, intent(1, attempt=2))


def test_a_run_to_its_end(conn: sqlite3.Connection) -> None:
    run_id = admitted(conn).run_id
    running = runs.transition(conn, run_id, T.RELEASE, S.STARTING, 20, worker={"pid": 1}, program={"pid": 2})
    assert (running.state, running.worker, running.program) == (S.RUNNING, {"pid": 1}, {"pid": 2})
    assert runs.transition(conn, run_id, T.RELEASE, S.RUNNING, 21) == running  # already so
    runs.transition(conn, run_id, T.STOP, S.RUNNING, 22)
    done = runs.transition(
        conn,
        run_id,
        T.FINISH,
        S.STOPPING,
        23,
        outcome=Outcome(OutcomeKind.CANCELLED, code=0),
        receipt={"a": 1},
    )
    assert done.outcome == {"kind": "cancelled", "code": 0, "signal": None}
    assert (done.state, done.receipt, done.worker, done.updated_ns) == (S.FINISHED, {"a": 1}, {"pid": 1}, 23)
    entries = feed.feed(conn, 1, 2)
    assert [(e.position, e.trigger, e.state) for e in entries] == [
        (2, "release", S.RUNNING),
        (3, "stop", S.STOPPING),
    ]
    assert feed.head(conn) == 4


def test_compare_and_set(conn: sqlite3.Connection) -> None:
    run_id = admitted(conn).run_id
    with pytest.raises(StaleState) as stale:
        runs.transition(conn, run_id, T.STOP, S.RUNNING, 20)
    assert stale.value.actual is S.STARTING
    with pytest.raises(TransitionRefused):
        runs.transition(conn, run_id, T.RESOLVE, S.STARTING, 20, reason="x")
    with pytest.raises(SupervisorError) as unknown:
        runs.transition(conn, "nosuchrun", T.STOP, S.RUNNING, 20)
    assert unknown.value.code is ErrorCode.UNKNOWN_RUN
    assert feed.head(conn) == 1


def test_retry_is_no_plain_transition(conn: sqlite3.Connection) -> None:
    row = refused(conn)
    with pytest.raises(TransitionRefused):
        runs.transition(conn, row.run_id, T.RETRY, S.NOT_STARTED, 60)


def test_quarantine_is_judged_anew_and_late_evidence_settles_it(conn: sqlite3.Connection) -> None:
    run_id = admitted(conn).run_id

    def judge(reason: str, evidence: dict[str, object]) -> RunRow:
        state = runs.get(conn, run_id)
        assert state is not None
        return runs.transition(conn, run_id, T.QUARANTINE, state.state, 30, reason=reason, evidence=evidence)

    judge("lock_leaked", {"n": 1})
    assert judge("lock_leaked", {"n": 2}).evidence == {"n": 2}
    assert feed.head(conn) == 2  # the same reason is no news
    judge("program_alive", {"n": 3})
    assert feed.head(conn) == 3
    done = runs.transition(
        conn, run_id, T.FINISH, S.QUARANTINED, 40, outcome=Outcome(OutcomeKind.EXITED, 3), receipt={}
    )
    assert (done.state, done.reason, done.evidence) == (S.FINISHED, None, None)


def test_resolve_keeps_the_evidence_and_every_word(conn: sqlite3.Connection) -> None:
    run_id = admitted(conn).run_id
    with pytest.raises(SupervisorError) as early:
        runs.set_resolution(conn, run_id, {"action": "accept"}, 10)
    assert early.value.code is ErrorCode.NOT_RESOLVABLE
    runs.transition(conn, run_id, T.QUARANTINE, S.STARTING, 30, reason="alive", evidence={"pid": 4})
    runs.set_resolution(conn, run_id, {"action": "wait"}, 31)
    row = runs.transition(conn, run_id, T.RESOLVE, S.QUARANTINED, 32, reason="resolved")
    assert (row.state, row.evidence) == (S.UNKNOWN, {"pid": 4})
    assert runs.set_resolution(conn, run_id, {"action": "accept"}, 33).resolution == {"action": "accept"}
    assert conn.execute("SELECT count(*) FROM resolutions").fetchone()[0] == 2


def test_late_facts_touch_nothing_settled(conn: sqlite3.Connection) -> None:
    row = refused(conn, retryable=False)
    assert runs.set_processes(conn, row.run_id, 1, 70, worker={"pid": 9}) == row
    hurt = runs.set_log_health(conn, row.run_id, {"damage": 1}, 71)
    assert (hurt.state, hurt.log_health) == (S.NOT_STARTED, {"damage": 1})
    assert runs.set_log_health(conn, row.run_id, {"damage": 1}, 72).updated_ns == 71


def test_processes_of_an_open_run(conn: sqlite3.Connection) -> None:
    run_id = admitted(conn).run_id
    runs.set_processes(conn, run_id, 1, 70, worker={"pid": 9})
    row = runs.set_processes(conn, run_id, 1, 71, program={"pid": 10})
    assert (row.worker, row.program) == ({"pid": 9}, {"pid": 10})
    assert runs.set_processes(conn, run_id, 2, 72, program={"pid": 11}) == row


def test_ids_by_prefix(conn: sqlite3.Connection) -> None:
    for serial, run_id in enumerate(["abc1", "abc2", "abd1", "zzzz"], 1):
        admitted(conn, serial, run_id=run_id)
    assert runs.by_prefix(conn, "abc") == ["abc1", "abc2"]
    assert runs.by_prefix(conn, "AB", limit=2) == ["abc1", "abc2"]
    assert runs.by_prefix(conn, "zzzz") == ["zzzz"]
    for odd in ("", "%", "a_", "\udc80", "é", "abc1x"):
        assert runs.by_prefix(conn, odd) == []
    assert runs.get(conn, "\udc80") is None


def test_directory_id_is_write_once(conn: sqlite3.Connection) -> None:
    assert meta.directory_id(conn) is None
    assert meta.ensure(conn, meta.DIRECTORY_ID, "dir-1") == "dir-1"
    assert meta.ensure(conn, meta.DIRECTORY_ID, "dir-2") == "dir-1"
    with pytest.raises(sqlite3.IntegrityError):
        meta.put(conn, meta.DIRECTORY_ID, "dir-2")
    meta.put(conn, meta.KEY_ID, "k1")
    meta.put(conn, meta.KEY_ID, "k2")
    assert meta.key_id(conn) == "k2"
