"""A journal of the previous schema, as its own release made it: read as it is, and then migrated."""

from __future__ import annotations

import os
import re
import sqlite3
from pathlib import Path

import pytest

from durable_supervisor import Command, Observer, RunState, Supervisor
from tests.gc.aging import age

DUMP = Path(__file__).parents[1] / "fixtures" / "journal" / "schema-2.sql"
HELLO = Command(argv=["sh", "-c", "echo hello; exit 3"], cwd="/")
MISSING = Command(argv=["/nonexistent/program"], cwd="/")


@pytest.fixture
def old(state_dir: Path) -> Path:
    text = DUMP.read_text()
    key = re.search(r"^-- The directory's key: ([0-9a-f]{64})$", text, re.MULTILINE)
    assert key is not None
    (state_dir / "key").write_bytes(bytes.fromhex(key[1]))
    os.mkdir(state_dir / "runs", 0o700)
    with sqlite3.connect(state_dir / "journal.db") as conn:
        conn.executescript(text)
    conn.close()
    for name in ("key", "journal.db"):
        os.chmod(state_dir / name, 0o600)
    return state_dir


async def test_a_journal_of_the_previous_schema(old: Path) -> None:
    async with Observer.open(old) as seen:
        before = [view.to_dict() for view in (await seen.list()).runs]
        assert [form["request_id"] for form in before] == ["stopped", "retryable", "finished"]
        assert [view.id for view in (await seen.list(label=("team", "infra"))).runs] == [before[2]["run_id"]]
        assert len((await seen.list(states=[RunState.NOT_STARTED], owner="local", collected=True)).runs) == 2
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
        assert (retried.id, retried.attempt) == (before[1]["run_id"], 2)
