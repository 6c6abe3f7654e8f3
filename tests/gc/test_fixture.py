"""Journals of earlier schemas, as their own releases made them: read as they are, and then migrated."""

from __future__ import annotations

import os
import re
import sqlite3
from pathlib import Path

import pytest

from durable_supervisor import Command, Observer, RunState, Supervisor
from durable_supervisor.journal import checking, collecting, migrate, runs
from durable_supervisor.journal.listing import list_runs
from tests.gc.aging import age

DUMPS = Path(__file__).parents[1] / "fixtures" / "journal"
SCHEMAS = ["schema-2", "schema-3"]  # the second has a collected run, and one with two attempts
HELLO = Command(argv=["sh", "-c", "echo hello; exit 3"], cwd="/")
MISSING = Command(argv=["/nonexistent/program"], cwd="/")


@pytest.fixture(params=SCHEMAS)
def dump(request: pytest.FixtureRequest) -> str:
    return (DUMPS / f"{request.param}.sql").read_text()


@pytest.fixture
def old(state_dir: Path, dump: str) -> Path:
    key = re.search(r"^-- The directory's key: ([0-9a-f]{64})$", dump, re.MULTILINE)
    assert key is not None
    (state_dir / "key").write_bytes(bytes.fromhex(key[1]))
    os.mkdir(state_dir / "runs", 0o700)
    with sqlite3.connect(state_dir / "journal.db") as conn:
        conn.executescript(dump)
    conn.close()
    for name in ("key", "journal.db"):
        os.chmod(state_dir / name, 0o600)
    return state_dir


async def test_a_journal_of_an_earlier_schema(old: Path) -> None:
    async with Observer.open(old) as seen:
        before = [view.to_dict() for view in (await seen.list()).runs]
        assert [form["request_id"] for form in before] == ["stopped", "retryable", "finished"]
        assert [view.id for view in (await seen.list(label=("team", "infra"))).runs] == [before[2]["run_id"]]
        assert len((await seen.list(states=[RunState.NOT_STARTED], owner="local", collected=True)).runs) == 2
        tried = (await seen.inspect(str(before[1]["run_id"]))).attempt
    async with Supervisor.open(old) as sup:
        assert [view.to_dict() for view in (await sup.list()).runs] == before
        assert (await sup.start(HELLO, request_id="finished")).admission == "existing"
    age(old)
    async with Supervisor.open(old) as sup:
        report = await sup.gc(keep=0, apply=True)
        assert (report.count, report.kept) == (2, {"retryable": 1})
        again = await sup.start(HELLO, request_id="finished")
        assert (again.id, again.admission) == (before[2]["run_id"], "existing")
        assert (await sup.start(MISSING, request_id="stopped")).state is RunState.NOT_STARTED
        retried = await sup.start(MISSING, request_id="retryable")
        assert (retried.id, retried.attempt) == (before[1]["run_id"], tried + 1)


def test_its_rows_say_the_same_when_it_is_migrated(dump: str) -> None:
    conn = sqlite3.connect(":memory:", isolation_level=None)
    conn.row_factory = sqlite3.Row
    conn.executescript(dump)
    everything = list_runs(conn, collected=True)
    kept = [row for row in everything if not row.collected]
    tried = {row.serial: runs.attempts(conn, row.serial) for row in everything}
    for _ in range(2):
        assert list_runs(conn) == kept
        assert list_runs(conn, owner="local") == kept
        assert list_runs(conn, limit=1, before_serial=kept[0].serial) == kept[1:2]
        assert list_runs(conn, states=[RunState.FINISHED]) == [kept[-1]]
        assert list_runs(conn, collected=True) == everything
        assert {serial: runs.attempts(conn, serial) for serial in tried} == tried
        assert [len(found) for found in tried.values()] == [row.attempt for row in everything]
        assert checking.without_attempt(conn) == []
        assert migrate.migrate(conn, migrate.load(), 2) == len(migrate.load())
    ended = {run.serial: run.ended_ns for run in collecting.kept_runs(conn, 0, 10)}
    assert ended == {row.serial: tried[row.serial][-1].ended_ns for row in kept}
    assert (checking.integrity(conn), checking.orphans(conn), checking.other_schema(conn)) == ([], {}, [])
    conn.close()
