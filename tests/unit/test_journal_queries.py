"""Pages are the same list at any size, and no query walks the table of runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from durable_supervisor.journal import advance, collecting, feed, listing, meta, recover, runs
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


MODULES = [runs, advance, listing, feed, meta, recover, collecting]
# Serials that an index holds, at most as many as a page has rows or as runs are not over.
BOUNDED = ("SCAN page", "USE TEMP B-TREE FOR ORDER BY")


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_no_query_walks_a_table(conn: sqlite3.Connection, module: ModuleType) -> None:
    """SEARCH follows an index; SCAN would cost more with every run there ever was, and so would sorting."""
    queries = {name: sql for name, sql in vars(module).items() if name.startswith("SQL_")}
    assert queries
    for name, sql in queries.items():
        arguments = [1] * sql.count("?")
        plan = [row["detail"] for row in conn.execute(f"EXPLAIN QUERY PLAN {sql}", arguments)]
        for step in plan:
            if "CO-ROUTINE page" in plan and step in BOUNDED:
                continue
            assert not step.startswith("SCAN"), (name, plan)
            assert "TEMP B-TREE" not in step, (name, plan)


def test_judged_runs_are_found_by_their_states(conn: sqlite3.Connection) -> None:
    """What is sorted comes of the index: the serials of runs that are not over."""
    plan = [row["detail"] for row in conn.execute(f"EXPLAIN QUERY PLAN {listing.SQL_JUDGED}", (0, 10))]
    assert plan[:2] == ["CO-ROUTINE page", "SEARCH runs USING INDEX runs_by_state (state=? AND serial>?)"]


def test_kept_runs_are_merged_from_all_states(conn: sqlite3.Connection) -> None:
    """None is sorted to find the page, and no state is forgotten."""
    for query in (listing.SQL_NEWEST_KEPT, collecting.SQL_KEPT):
        plan = [row["detail"] for row in conn.execute(f"EXPLAIN QUERY PLAN {query}", (0, 10))]
        found = plan[: plan.index("SCAN page")]
        assert len([step for step in found if "INDEX runs_by_state (state=? AND serial" in step]) == len(S)
        assert not [step for step in found if "TEMP B-TREE" in step]


def test_a_start_and_an_end_write_to_few_trees(conn: sqlite3.Connection) -> None:
    """Each of them costs every commit a page; a label is worth a tree of its own."""
    start, end = _written(conn, runs.SQL_INSERT), _written(conn, advance.SQL_ADVANCE)
    keys = {"sqlite_autoindex_runs_1", "sqlite_autoindex_runs_2"}
    assert start == {"runs", "runs_by_state", "runs_by_owner", "runs_unresolved"} | keys
    assert end == {"runs", "runs_by_state", "runs_unresolved"}
    assert _written(conn, feed.SQL_APPEND) == {"feed"}


@pytest.mark.parametrize("sql", [runs.SQL_INSERT, advance.SQL_ADVANCE, feed.SQL_APPEND])
def test_no_condition_has_a_tree_built_for_it(conn: sqlite3.Connection, sql: str) -> None:
    """As SQLite does for ``IN`` with more than two constants, in checks, guards and indexes alike."""
    assert "OpenEphemeral" not in {op["opcode"] for op in _code(conn, sql)}


def _written(conn: sqlite3.Connection, sql: str) -> set[str]:
    roots = {row["rootpage"]: row["name"] for row in conn.execute("SELECT name, rootpage FROM sqlite_schema")}
    code = _code(conn, sql)
    cursors = {op["p1"]: roots[op["p2"]] for op in code if op["opcode"] == "OpenWrite"}
    changed = {op["p1"] for op in code if op["opcode"] in ("Insert", "IdxInsert", "Delete", "IdxDelete")}
    return {cursors[cursor] for cursor in changed if cursor in cursors}


def _code(conn: sqlite3.Connection, sql: str) -> list[sqlite3.Row]:
    """With that of the guards."""
    return conn.execute(f"EXPLAIN {sql}", [1] * sql.count("?")).fetchall()
