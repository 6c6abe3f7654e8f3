"""What happens to the journal's file, and to files that are none of ours."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from durable_supervisor import (
    Command,
    ErrorCode,
    RunState,
    Supervisor,
)
from tests.contract.hosts import open_error
from tests.contract.runs import open_runs
from tests.support import PATIENCE, eventually_async

# The journal itself.


@pytest.mark.parametrize("what", ["garbage", "cut", "other", "page"])
async def test_a_corrupt_journal_starts_nothing_and_is_kept(state_dir: Path, what: str) -> None:
    async with open_runs(state_dir) as runs:
        run = await runs.sh("exit 7")
        await runs.wait(run)
    path = state_dir / "journal.db"
    match what:
        case "garbage":
            path.write_bytes(b"no database at all " * 500)
        case "cut":
            os.truncate(path, 5000)
        case "other":
            path.unlink()
            with sqlite3.connect(path) as conn:
                conn.execute("CREATE TABLE theirs (x)")
            conn.close()
        case "page":
            content = path.read_bytes()
            path.write_bytes(content[:4096] + os.urandom(4096 * 3) + content[4096 * 4 :])
    before = path.read_bytes()
    error = await open_error(state_dir, ErrorCode.JOURNAL_CORRUPT)
    assert "recover" in error.hint
    assert path.read_bytes() == before
    report = await Supervisor.recover(state_dir)
    assert report["added"] == [run.id]
    aside = Path(str(report["old_journal"]))
    assert aside.read_bytes() == before, "kept aside, not thrown away"
    async with open_runs(state_dir) as runs:
        final = await runs.sup.inspect(run.id)
        assert final.outcome is not None
        assert final.outcome.code == 7


async def test_a_fifo_or_directory_in_the_journals_place_is_refused(state_dir: Path) -> None:
    for make in (os.mkfifo, os.mkdir):
        make(state_dir / "journal.db")
        async with asyncio.timeout(PATIENCE):
            await open_error(state_dir, ErrorCode.STATE_DIR_REFUSED)
        path = state_dir / "journal.db"
        path.rmdir() if path.is_dir() else path.unlink()
    async with open_runs(state_dir) as runs:
        await runs.wait(await runs.sh("exit 0"))


async def test_a_stale_wal_of_a_deleted_journal_is_never_replayed(state_dir: Path) -> None:
    """A new directory's journal must not take up what another one had left behind."""
    async with Supervisor.open(state_dir) as sup:
        run = await sup.start(Command(argv=["true"]))
        await sup.wait(run.id, timeout=PATIENCE)
        copies = {name: (state_dir / name).read_bytes() for name in ("journal.db-wal", "journal.db-shm")}
    assert copies["journal.db-wal"]
    shutil.rmtree(state_dir / "runs")
    (state_dir / "journal.db").unlink()
    for name, content in copies.items():
        (state_dir / name).write_bytes(content)
    async with Supervisor.open(state_dir) as sup:
        assert (await sup.list()).runs == []


async def test_settled_runs_need_their_log_for_nothing(state_dir: Path) -> None:
    """Logs thrown away by hand: outcomes stay in the journal, and a repeated id gets its run."""
    async with open_runs(state_dir) as runs:
        run = await runs.sup.start(Command(argv=["sh", "-c", "exit 9"]), request_id="kept")
        await runs.wait(run)
        await runs.sup.reconcile()  # now the journal has it too
    shutil.rmtree(state_dir / "runs")
    async with open_runs(state_dir) as runs:
        same = await runs.sup.start(Command(argv=["sh", "-c", "exit 9"]), request_id="kept")
        assert (same.id, same.state, same.admission) == (run.id, RunState.FINISHED, "existing")
        seen = await runs.sup.inspect(run.id)
        assert seen.outcome is not None
        assert seen.outcome.code == 9
        assert seen.log_health == {"status": "missing"}
        page = await runs.sup.events(run.id)
        assert page.events == []
        fresh = await runs.sh("echo fresh")
        await runs.wait(fresh)
        assert await runs.output(fresh) == b"fresh\n"


async def test_files_that_are_none_of_ours_are_left_alone(state_dir: Path) -> None:
    async with open_runs(state_dir) as runs:
        await runs.wait(await runs.sh("exit 0"))
    strange = [
        "runs/note.txt",
        "runs/zzzz/x.a1.log",
        "runs/0000/../0000/README",
        "runs/0000/.a1.log",
        "extra",
    ]
    for name in strange:
        path = state_dir / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    (state_dir / "runs" / "0000" / "dangling.a1.log").symlink_to("nowhere")
    os.mkfifo(state_dir / "runs" / "0000" / "0123456789abcdef.a1.log")
    async with asyncio.timeout(PATIENCE):
        async with open_runs(state_dir) as runs:
            await runs.wait(await runs.sh("exit 0"))
            assert len((await runs.sup.list()).runs) == 2
    assert all((state_dir / name).read_text() == "mine" for name in strange)


# Ends that are told before the journal has them.


async def test_an_end_that_the_journal_does_not_take_is_told_all_the_same_and_harms_no_other(
    state_dir: Path,
) -> None:
    async with open_runs(state_dir) as runs:
        started = await asyncio.gather(*(runs.sh(f"read _; exit {code}", stdin="open") for code in range(8)))
        ids = [run.id for run in started]

        def refuse(conn: sqlite3.Connection) -> None:
            conn.create_function("fail", 0, lambda: 1 // 0)
            one = f"WHEN NEW.run_id = '{ids[3]}' AND NEW.state = 'finished'"
            conn.execute(
                f"CREATE TEMP TRIGGER refused BEFORE UPDATE ON main.runs {one} BEGIN SELECT fail(); END"
            )

        await runs.sup.journal.write(refuse)
        for run in started:
            await runs.sup.write_stdin(run.id, b"\n")
        ends = await asyncio.gather(*(runs.wait(run) for run in started))
        assert [end.outcome and end.outcome.code for end in ends] == list(range(8))
        await eventually_async(lambda: runs.sup.capacity().held == 1)
        assert await told_of(runs.sup) == Counter(set(ids) - {ids[3]})
        assert {seen.state for seen in (await runs.sup.list()).runs} == {RunState.FINISHED}
        seen = await runs.sup.wait(ids[3], timeout=PATIENCE)
        assert seen == await runs.sup.inspect(ids[3])
        await runs.sup.journal.write(lambda conn: conn.execute("DROP TRIGGER refused"))
        await eventually_async(lambda: runs.sup.capacity().held == 0)
        assert await told_of(runs.sup) == Counter(ids)


async def told_of(sup: Supervisor) -> Counter[str]:
    """How often the feed tells of each run's end."""
    return Counter(entry.run_id for entry in await sup.feed(limit=1000) if entry.state is RunState.FINISHED)
