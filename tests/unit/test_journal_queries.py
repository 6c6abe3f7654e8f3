"""Pages are the same list at any size, and no query walks the table of runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from durable_supervisor.journal import collecting, feed, listing, meta, recover, runs
from durable_supervisor.journal.listing import judged_runs, list_runs
from durable_supervisor.model.outcome import Outcome, OutcomeKind
from durable_supervisor.model.states import JUDGED_STATES, RunState, Trigger
from tests.unit.journal_helpers import intent, migrated

S, T = RunState, Trigger
COUNT = 40


@pytest.fixture(scope="module")
def conn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    """Runs 1…40: every third finished, every fifth of the rest quarantined; even ones are labelled."""
    conn = migrated(Path(tmp_path_factory.mktemp("journal")) / "journal.db")
    conn.execute("BEGIN")
    for serial in range(1, COUNT + 1):
        labels = {"parity": "even"} if serial % 2 == 0 else {}
        run_id = runs.admit(conn, intent(serial, labels=labels)).row.run_id
        if serial % 3 == 0:
            runs.transition(conn, run_id, T.FINISH, S.STARTING, 9, outcome=Outcome(OutcomeKind.EXITED, 0))
        elif serial % 5 == 0:
            runs.transition(conn, run_id, T.QUARANTINE, S.STARTING, 9, reason="x")
    conn.execute("COMMIT")
    yield conn
    conn.close()


@pytest.mark.parametrize("size", [1, 7, 40, 100])
@pytest.mark.parametrize(
    ("states", "label"),
    [
        (None, None),
        ([S.FINISHED], None),
        ([S.STARTING, S.QUARANTINED], None),
        (None, ("parity", "even")),
        ({S.FINISHED, S.QUARANTINED}, ("parity", "even")),
        ([S.UNKNOWN], ("parity", "even")),
        (None, ("parity", "odd")),
        ([], None),
    ],
)
def test_any_page_size_gives_the_same_list(
    conn: sqlite3.Connection, size: int, states: list[RunState] | None, label: tuple[str, str] | None
) -> None:
    def wanted(serial: int) -> bool:
        state = S.FINISHED if serial % 3 == 0 else S.QUARANTINED if serial % 5 == 0 else S.STARTING
        named = label is None or (label[1] == "even" and serial % 2 == 0)
        return named and (states is None or state in states)

    found: list[int] = []
    before = None
    while page := list_runs(conn, before_serial=before, limit=size, states=states, label=label):
        assert len(page) <= size
        found += [row.serial for row in page]
        before = page[-1].serial
    assert found == [serial for serial in range(COUNT, 0, -1) if wanted(serial)]


def test_judged_runs_are_those_not_over(conn: sqlite3.Connection) -> None:
    found = []
    after = 0
    while page := judged_runs(conn, after, 5):
        found += page
        after = page[-1].serial
    assert [row.serial for row in found] == [serial for serial in range(1, COUNT + 1) if serial % 3]
    assert {row.state for row in found} <= JUDGED_STATES


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_the_feed_pages_without_gap(conn: sqlite3.Connection, size: int) -> None:
    found: list[int] = []
    while page := feed.feed(conn, found[-1] if found else 0, size):
        found += [entry.position for entry in page]
    assert found == list(range(1, feed.head(conn) + 1))


MODULES = [runs, listing, feed, meta, recover, collecting]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_no_query_walks_a_table(conn: sqlite3.Connection, module: ModuleType) -> None:
    """SEARCH follows an index; SCAN would cost more with every run there ever was."""
    queries = {name: sql for name, sql in vars(module).items() if name.startswith("SQL_")}
    assert queries
    for name, sql in queries.items():
        arguments = [1] * sql.count("?")
        plan = [row["detail"] for row in conn.execute(f"EXPLAIN QUERY PLAN {sql}", arguments)]
        for step in plan:
            assert not step.startswith("SCAN"), (name, plan)
            assert "TEMP B-TREE" not in step, (name, plan)


def test_judged_runs_come_from_their_own_index(conn: sqlite3.Connection) -> None:
    plan = conn.execute(f"EXPLAIN QUERY PLAN {listing.SQL_JUDGED}", (0, 10)).fetchall()
    assert [row["detail"] for row in plan] == ["SEARCH runs USING INDEX runs_judged (serial>?)"]
