"""The transition table against SQL's own guards, driven past the Python code where that is the point."""

from __future__ import annotations

import itertools
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from durable_supervisor.journal import feed, runs
from durable_supervisor.journal.advance import advance
from durable_supervisor.journal.errors import StaleState, TransitionRefused
from durable_supervisor.journal.rows import RunRow
from durable_supervisor.model.outcome import Outcome, OutcomeKind
from durable_supervisor.model.states import SETTLED_STATES, TRANSITIONS, Rule, RunState, Trigger
from tests.unit.journal_helpers import intent, migrated

S, T = RunState, Trigger
EXITED = Outcome(OutcomeKind.EXITED, 0)
MOVES = {(old, new) for (old, _), new in TRANSITIONS.items() if isinstance(new, RunState) and old is not new}
NEEDS_REASON = (S.NOT_STARTED, S.UNKNOWN, S.QUARANTINED)

SQL_MOVE = """
UPDATE runs SET state = ?, reason = ?, outcome = ?, retryable = 0, attempt = ?, ended_ns = NULL
WHERE run_id = ?
"""


@pytest.fixture
def conn(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    conn = migrated(tmp_path / "journal.db")
    yield conn
    conn.close()


def reach(conn: sqlite3.Connection, serial: int, state: RunState) -> RunRow:
    """A run in this state, made by the journal's own functions."""
    start = S.QUEUED if state is S.QUEUED else S.STARTING
    row = runs.admit(conn, intent(serial, state=start)).row
    steps = {
        S.RUNNING: T.RELEASE, S.STOPPING: T.STOP, S.FINISHED: T.FINISH, S.NOT_STARTED: T.REFUSE,
        S.UNKNOWN: T.LOSE, S.QUARANTINED: T.QUARANTINE,
    }  # fmt: skip
    if state not in steps:
        return row
    return runs.transition(
        conn,
        row.run_id,
        steps[state],
        S.STARTING,
        20,
        reason="why" if state in NEEDS_REASON else None,
        outcome=EXITED if state is S.FINISHED else None,
        retryable=state is S.NOT_STARTED,
    )


def test_the_moves_in_sql_are_those_of_the_table(conn: sqlite3.Connection) -> None:
    stored = {(S(old), S(new)) for old, new in conn.execute("SELECT old, new FROM state_moves")}
    assert stored == MOVES


def test_sql_alone_refuses_every_other_move(conn: sqlite3.Connection) -> None:
    for serial, (old, new) in enumerate(itertools.product(S, S), 1):
        row = reach(conn, serial, old)
        change = (
            new.value,
            None if new not in NEEDS_REASON else "other",
            '{"kind":"exited"}' if new is S.FINISHED else None,
            row.attempt + (old is S.NOT_STARTED and new in (S.STARTING, S.QUEUED)),
            row.run_id,
        )
        if (old, new) in MOVES or (old is new and old not in SETTLED_STATES):
            conn.execute(SQL_MOVE, change)
        else:
            with pytest.raises(sqlite3.IntegrityError):
                conn.execute(SQL_MOVE, change)
            assert runs.get(conn, row.run_id) == row


FACTS = [
    ("attempt", 2), ("boot_id", "x"), ("worker", "{}"), ("program", "{}"), ("reason", "x"),
    ("outcome", '{"kind":"x"}'), ("receipt", "{}"), ("evidence", "{}"), ("retryable", 0),
    ("survives_unit_restart", 1), ("stop_requested", 1), ("ended_ns", 21), ("ended_ns", None),
    ("intent_ns", 1), ("first_seq", 2),
]  # fmt: skip
REQUEST = [
    "run_id", "shard", "owner", "request_id", "argv", "cwd", "env_names", "labels", "limits", "completion",
    "digests", "key_id", "nested_in", "created_ns", "serial",
]  # fmt: skip


@pytest.mark.parametrize("state", sorted(SETTLED_STATES))
def test_no_fact_of_a_settled_run_is_rewritten(conn: sqlite3.Connection, state: RunState) -> None:
    row = reach(conn, 1, state)
    for name, value in FACTS:
        allowed = state is S.NOT_STARTED and name == "stop_requested"
        if allowed or getattr(row, name, None) == bool(value) is False:
            continue
        with pytest.raises(sqlite3.IntegrityError):
            conn.execute(f"UPDATE runs SET {name} = ?", (value,))
    conn.execute("UPDATE runs SET log_health = '{}', resolution = '{}', updated_ns = 99")


@pytest.mark.parametrize("state", sorted(S))
def test_what_was_asked_for_never_changes_and_nothing_is_deleted(
    conn: sqlite3.Connection, state: RunState
) -> None:
    row = reach(conn, 1, state)
    for name in REQUEST:
        with pytest.raises(sqlite3.IntegrityError):
            conn.execute(f"UPDATE runs SET {name} = '1'")
    for sql in (
        "DELETE FROM runs",
        "INSERT OR REPLACE INTO runs SELECT * FROM runs",
        "DELETE FROM feed",
        "UPDATE feed SET reason = 'x'",
        "INSERT OR REPLACE INTO feed SELECT * FROM feed",
        "UPDATE runs SET intent_ns = intent_ns + 1",
        "UPDATE runs SET first_seq = first_seq + 1",
    ):
        with pytest.raises(sqlite3.IntegrityError):
            conn.execute(sql)
    assert runs.get(conn, row.run_id) == row


@pytest.mark.parametrize(
    ("state", "change"),
    [
        (S.RUNNING, "state = 'finished'"),  # no outcome
        (S.RUNNING, "state = 'unknown'"),  # no reason
        (S.RUNNING, "outcome = '{}'"),
        (S.RUNNING, "receipt = '{}'"),
        (S.RUNNING, "retryable = 1"),
        (S.RUNNING, "attempt = 2"),
        (S.RUNNING, "ended_ns = 1"),
        (S.RUNNING, "state = 'unknown', reason = 'x', retryable = 1"),
        (S.RUNNING, "state = 'paused'"),
        (S.NOT_STARTED, "state = 'starting', retryable = 0, reason = NULL"),  # the same attempt
        (S.NOT_STARTED, "state = 'starting', retryable = 0, attempt = 3"),
    ],
)
def test_states_carry_only_their_own_fields(conn: sqlite3.Connection, state: RunState, change: str) -> None:
    reach(conn, 1, state)
    with pytest.raises(sqlite3.IntegrityError):
        conn.execute(f"UPDATE runs SET {change}")


def test_a_stop_is_never_taken_back_and_forbids_the_retry(conn: sqlite3.Connection) -> None:
    row = reach(conn, 1, S.NOT_STARTED)
    runs.mark_stop_requested(conn, row.run_id, 30)
    for change in ("stop_requested = 0", "state = 'starting', retryable = 0, attempt = 2"):
        with pytest.raises(sqlite3.IntegrityError):
            conn.execute(f"UPDATE runs SET {change}")


def test_what_an_earlier_attempt_was_never_changes(conn: sqlite3.Connection) -> None:
    row = reach(conn, 1, S.NOT_STARTED)
    runs.admit(conn, intent(1, attempt=2, now_ns=40, first_seq=7))
    [first, second] = runs.attempts(conn, row.serial)
    assert (first.attempt, first.intent_ns, first.first_seq, first.ended_ns) == (1, 1001, 1, 20)
    assert (first.ended_state, first.reason) == (S.NOT_STARTED, "why")
    assert second == (2, 40, "boot-1", 7, None, None, None)
    for sql in (
        "UPDATE attempts SET reason = 'x'",
        "DELETE FROM attempts",
        "INSERT OR REPLACE INTO attempts SELECT * FROM attempts",
    ):
        with pytest.raises(sqlite3.IntegrityError):
            conn.execute(sql)
    assert runs.attempts(conn, row.serial) == [first, second]


class JournalMachine(RuleBasedStateMachine):
    """Random triggers on one run: Python's answer, SQL's rows and the feed always agree with the table."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.conn = migrated(Path(self.folder.name) / "journal.db")
        self.now = 100

    @initialize(start=st.sampled_from([S.QUEUED, S.STARTING]))
    def admit(self, start: RunState) -> None:
        self.row = runs.admit(self.conn, intent(1, state=start)).row
        self.history = [(self.row.state, self.row.attempt)]

    def teardown(self) -> None:
        self.conn.close()
        self.folder.cleanup()

    @rule(
        trigger=st.sampled_from(T),
        stale=st.booleans(),
        held=st.booleans(),
        retryable=st.booleans(),
        expect=st.sampled_from(S),
        reason=st.sampled_from(["a", "b"]),
    )
    def move(
        self, trigger: Trigger, stale: bool, held: bool, retryable: bool, expect: RunState, reason: str
    ) -> None:
        expect = expect if stale else self.row.state
        self.now += 1
        cell = TRANSITIONS[(self.row.state, trigger)]
        kwargs: dict[str, object] = {"reason": reason} if cell in NEEDS_REASON else {}
        if cell is S.FINISHED:
            kwargs |= {"outcome": EXITED, "receipt": {"n": self.now}}
        if cell is S.NOT_STARTED:
            kwargs["retryable"] = retryable
        try:
            if held and not stale:
                after = advance(self.conn, self.row, trigger, self.now, **kwargs)  # type: ignore[arg-type]
            else:
                after = runs.transition(self.conn, self.row.run_id, trigger, expect, self.now, **kwargs)  # type: ignore[arg-type]
        except StaleState:
            assert expect is not self.row.state
            return
        except TransitionRefused:
            assert cell is Rule.REFUSED or trigger in (T.RETRY, T.REQUEUE)
            return
        assert expect is self.row.state
        if cell is Rule.SAME:
            assert after == self.row
        else:
            assert after.state is cell
            if after.state is not self.row.state or after.reason != self.row.reason:
                self.history.append((after.state, after.attempt))
        self.row = after

    @rule()
    def stop(self) -> None:
        self.now += 1
        after = runs.mark_stop_requested(self.conn, self.row.run_id, self.now)
        assert after.state is self.row.state
        self.row = after

    @rule()
    def send_again(self) -> None:
        self.now += 1
        offer = intent(1, attempt=self.row.attempt + 1, now_ns=self.now)
        answer = runs.admit(self.conn, offer)
        assert (answer.kind == "retry") == self.row.may_retry
        if answer.kind == "retry":
            assert (answer.row.state, answer.row.attempt) == (S.STARTING, self.row.attempt + 1)
            self.history.append((S.STARTING, answer.row.attempt))
        else:
            assert answer.kind == "existing"
            assert answer.row == self.row
        self.row = answer.row

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "row"):
            return
        assert runs.get(self.conn, self.row.run_id) == self.row
        entries = feed.feed(self.conn, 0, 10_000)
        assert [(entry.state, entry.attempt) for entry in entries] == self.history
        assert [entry.position for entry in entries] == list(range(1, len(entries) + 1))
        newest = runs.attempts(self.conn, 1)[-1]
        assert newest.attempt == self.row.attempt
        assert newest.ended_state == (self.row.state if self.row.state in SETTLED_STATES else None)


TestJournalMachine = JournalMachine.TestCase
TestJournalMachine.settings = settings(max_examples=60, stateful_step_count=25)
