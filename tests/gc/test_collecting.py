"""Real runs: what goes, what stays, and how what is left of them answers."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from pathlib import Path

import pytest

from durable_supervisor import Command, ErrorCode, Observer, RunState, Supervisor, SupervisorError
from durable_supervisor.runlog.collected import CollectedLog
from tests.gc.aging import HOUR, age, files
from tests.support import PATIENCE

HELLO = Command(argv=["sh", "-c", "echo hello; exit 3"])
LOUD = Command(argv=["sh", "-c", "head -c 3000000 /dev/zero; exit 3"])


async def ended(sup: Supervisor, request_id: str, command: Command = HELLO, **labels: str) -> str:
    run = await sup.start(command, request_id=request_id, labels=labels)
    await sup.wait(run.id, timeout=PATIENCE)
    await sup.reconcile()  # what the log says is in the journal too
    return run.id


async def test_what_is_left_answers_for_ever(state_dir: Path) -> None:
    async with Supervisor.open(state_dir) as sup:
        run_id = await ended(sup, "once", LOUD, team="infra")
        before = await sup.inspect(run_id)
    age(state_dir)
    async with Supervisor.open(state_dir) as sup:
        plan = await sup.gc(older_than=HOUR / 2)
        assert (plan.applied, plan.count, [run.run_id for run in plan.runs]) == (False, 1, [run_id])
        assert plan.bytes > 3_000_000
        assert files(state_dir)
        assert (await sup.inspect(run_id)).collected_ns is None
        done = await sup.gc(older_than=HOUR / 2, apply=True)
        assert (done.applied, done.runs, done.bytes, done.left) == (True, plan.runs, plan.bytes, 0)
        assert files(state_dir) == []
        left = await sup.inspect(run_id)
        assert left.collected_ns is not None
        assert (left.state, left.outcome, left.attempt) == (RunState.FINISHED, before.outcome, 1)
        assert (left.argv, left.cwd, left.labels, left.receipt, left.head) == ((), "", {}, None, 0)
        assert left.log_health is None
        assert (await sup.wait(run_id)).outcome == before.outcome
        assert (await sup.stop(run_id)).result == "already_ended"
        again = await sup.start(LOUD, request_id="once")
        assert (again.id, again.admission, again.state) == (run_id, "existing", RunState.FINISHED)
        with pytest.raises(SupervisorError) as conflict:
            await sup.start(HELLO, request_id="once")
        assert conflict.value.code is ErrorCode.IDEMPOTENCY_CONFLICT
        assert conflict.value.details["fields"] == ["argv"]
        assert (await sup.list()).runs == []
        assert [view.id for view in (await sup.list(collected=True)).runs] == [run_id]
        assert (await sup.gc(keep=0, apply=True)).count == 0
        assert [entry.run_id for entry in await sup.feed()].count(run_id) >= 2
        await check_collected(sup, run_id)
    async with Observer.open(state_dir) as seen:
        await check_collected(seen, run_id)


async def check_collected(observer: Observer, run_id: str) -> None:
    readings = (observer.events(run_id), anext(observer.follow(run_id)), observer.audit(run_id, ["secret-1"]))
    for reading in readings:
        with pytest.raises(SupervisorError) as error:
            await reading
        assert error.value.code is ErrorCode.RUN_COLLECTED
        assert error.value.details["run_id"] == run_id
        assert error.value.details["outcome"] == {"kind": "exited", "code": 3, "signal": None}


async def test_only_what_is_over_goes(state_dir: Path, tmp_path: Path) -> None:
    async with Supervisor.open(state_dir) as sup:
        old = await ended(sup, "old")
        retryable = (await sup.start(Command(argv=[str(tmp_path / "none")]), request_id="retryable")).id
        stopped = (await sup.start(Command(argv=[str(tmp_path / "none")]), request_id="stopped")).id
        await sup.stop(stopped)
        live = (await sup.start(Command(argv=["sleep", "3131"]), request_id="live")).id
    age(state_dir)
    async with Supervisor.open(state_dir) as sup:
        young = await ended(sup, "young")
        report = await sup.gc(keep=0, apply=True)
        assert {run.run_id for run in report.runs} == {old, stopped}
        over = report.kept.pop("young", 0) + report.kept.pop("locked", 0)  # its worker may just be leaving
        assert (over, report.kept) == (1, {"open": 1, "retryable": 1})
        assert {view.id for view in (await sup.list()).runs} == {retryable, live, young}
        assert (await sup.start(Command(argv=[str(tmp_path / "none")]), request_id="stopped")).id == stopped
        again = await sup.start(Command(argv=[str(tmp_path / "none")]), request_id="retryable")
        assert (again.id, again.attempt) == (retryable, 2)
        assert (await sup.inspect(live)).state is RunState.RUNNING
        await sup.shutdown(timeout=PATIENCE)


async def test_a_criterion_is_needed(state_dir: Path) -> None:
    async with Supervisor.open(state_dir) as sup:
        for asked in ({}, {"keep": -1}, {"older_than": -1.0}, {"max_bytes": 1.5}, {"label": ("a",)}):
            with pytest.raises(SupervisorError) as error:
                await sup.gc(**asked)
            assert error.value.code is ErrorCode.INVALID_REQUEST


async def test_a_lost_journal_knows_the_collected_ids_again(state_dir: Path) -> None:
    async with Supervisor.open(state_dir) as sup:
        gone = await ended(sup, "gone")
        await ended(sup, "kept")
    age(state_dir, run_id=gone)
    async with Supervisor.open(state_dir) as sup:
        assert (await sup.gc(keep=0, apply=True)).count == 1
        before = await sup.inspect(gone)
    for path in state_dir.glob("journal.db*"):
        path.unlink()
    with pytest.raises(SupervisorError) as error:
        await open_and_close(state_dir)
    assert error.value.code is ErrorCode.JOURNAL_MISSING
    async with Observer.open(state_dir) as seen:
        assert (await seen.inspect(gone)).outcome == before.outcome
        await check_collected(seen, gone)
    report = await Supervisor.recover(state_dir)
    assert len(report["added"]) == 2  # type: ignore[arg-type]
    assert report["conflicts"] == []
    async with Supervisor.open(state_dir) as sup:
        again = await sup.start(HELLO, request_id="gone")
        assert (again.id, again.admission) == (gone, "existing")
        assert (await sup.inspect(gone)).collected_ns == before.collected_ns
        assert len((await sup.list()).runs) == 1


async def test_the_last_log_gone_is_still_no_new_directory(state_dir: Path) -> None:
    """With neither a log nor a journal left, the file of tombstones alone tells that ids are spent."""
    async with Supervisor.open(state_dir) as sup:
        gone = await ended(sup, "gone")
    age(state_dir)
    async with Supervisor.open(state_dir) as sup:
        await sup.gc(keep=0, apply=True)
    for path in state_dir.glob("journal.db*"):
        path.unlink()
    with pytest.raises(SupervisorError) as error:
        await open_and_close(state_dir)
    assert error.value.code is ErrorCode.JOURNAL_MISSING
    assert (await Supervisor.recover(state_dir))["added"] == [gone]
    async with Supervisor.open(state_dir) as sup:
        assert (await sup.start(HELLO, request_id="gone")).id == gone


async def test_a_journal_from_before_the_runs_that_were_collected(state_dir: Path) -> None:
    async with Supervisor.open(state_dir) as sup:
        await ended(sup, "first")
    backup = (state_dir / "journal.db").read_bytes()
    async with Supervisor.open(state_dir) as sup:
        later = await ended(sup, "later")
    age(state_dir)
    async with Supervisor.open(state_dir) as sup:
        assert (await sup.gc(keep=0, apply=True)).count == 2
    (state_dir / "journal.db").write_bytes(backup)
    with pytest.raises(SupervisorError) as error:
        await open_and_close(state_dir)
    assert error.value.code is ErrorCode.JOURNAL_BEHIND
    report = await Supervisor.recover(state_dir)
    assert report["added"] == [later]
    async with Supervisor.open(state_dir) as sup:
        assert (await sup.list()).runs == []
        for request_id in ("first", "later"):
            assert (await sup.start(HELLO, request_id=request_id)).admission == "existing"


async def test_a_journal_from_before_they_were_over(state_dir: Path) -> None:
    """Its row says running, and no log is left to tell: the tombstone does."""
    async with Supervisor.open(state_dir) as sup:
        run = await sup.start(Command(argv=["sh", "-c", "sleep 3131"]), request_id="one")
    backup = (state_dir / "journal.db").read_bytes()
    async with Supervisor.open(state_dir) as sup:
        await sup.stop(run.id, grace=1)
    age(state_dir)
    async with Supervisor.open(state_dir) as sup:
        assert (await sup.gc(keep=0, apply=True)).count == 1
    (state_dir / "journal.db").write_bytes(backup)
    with pytest.raises(SupervisorError) as error:
        await open_and_close(state_dir)
    assert error.value.code is ErrorCode.JOURNAL_BEHIND
    report = await Supervisor.recover(state_dir)
    assert report["advanced"] == [run.id]
    async with Supervisor.open(state_dir) as sup:
        seen = await sup.inspect(run.id)
        assert seen.outcome is not None
        assert (seen.state, seen.outcome.kind.value) == (RunState.FINISHED, "cancelled")


async def test_a_lost_file_of_tombstones_is_written_again(state_dir: Path) -> None:
    async with Supervisor.open(state_dir) as sup:
        first = await ended(sup, "first")
        second = await ended(sup, "second")
    path = Path(CollectedLog(str(state_dir / "runs")).path)
    for run_id in (first, second):
        age(state_dir, run_id=run_id)
        async with Supervisor.open(state_dir) as sup:
            assert (await sup.gc(keep=0, apply=True)).count == 1
    assert path.stat().st_mode & 0o777 == 0o600
    whole = path.read_bytes()
    assert b"hello" not in whole  # the words of a request are not kept
    for damaged in (b"", whole[:-40], b"\0" * len(whole), whole.splitlines(keepends=True)[0]):
        path.write_bytes(damaged)
        async with Supervisor.open(state_dir):
            pass
        found = [line.document for line in CollectedLog(str(state_dir / "runs")).lines()]
        assert {str(one["run_id"]) for one in found if one} == {first, second}
    path.unlink()
    async with Supervisor.open(state_dir):
        pass
    assert path.exists()


async def test_a_link_in_the_place_of_the_file_is_refused(state_dir: Path, tmp_path: Path) -> None:
    async with Supervisor.open(state_dir):
        pass
    (tmp_path / "elsewhere").write_text("theirs")
    os.symlink(tmp_path / "elsewhere", state_dir / "runs" / "collected.log")
    with pytest.raises(SupervisorError) as error:
        await open_and_close(state_dir)
    assert error.value.code is ErrorCode.STATE_DIR_REFUSED
    assert (tmp_path / "elsewhere").read_text() == "theirs"


async def test_files_of_others_are_not_followed(state_dir: Path, tmp_path: Path) -> None:
    """Somebody has put a link in the place of a directory of segments."""
    async with Supervisor.open(state_dir) as sup:
        run_id = await ended(sup, "one")
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "0000000000000009.log").write_text("precious")
    [log] = (state_dir / "runs").glob(f"*/{run_id}.a1.log")
    os.symlink(theirs, log.with_suffix(".seg"))
    age(state_dir)
    async with Supervisor.open(state_dir) as sup:
        assert (await sup.gc(keep=0, apply=True)).left == 0
    assert not log.exists()
    assert (theirs / "0000000000000009.log").read_text() == "precious"


async def test_files_that_cannot_be_looked_at_harm_their_run_alone(state_dir: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may look at everything: run as an ordinary user")
    async with Supervisor.open(state_dir) as sup:
        closed = await ended(sup, "closed", LOUD)
        other = await ended(sup, "other")
    age(state_dir)
    [log] = (state_dir / "runs").glob(f"*/{closed}.a1.log")
    log.with_suffix(".seg").mkdir(exist_ok=True)
    log.with_suffix(".seg").chmod(0)
    async with Supervisor.open(state_dir) as sup:
        report = await sup.gc(keep=0, apply=True)
        assert ([run.run_id for run in report.runs], report.kept) == ([other], {"unreadable": 1})
        log.with_suffix(".seg").chmod(0o700)
        assert (await sup.gc(keep=0, apply=True)).count == 1


async def test_what_cannot_be_removed_is_tried_again(state_dir: Path) -> None:
    async with Supervisor.open(state_dir) as sup:
        run_id = await ended(sup, "one")
    [log] = (state_dir / "runs").glob(f"*/{run_id}.a1.log")
    held = log.with_suffix(".seg")
    held.mkdir(exist_ok=True)
    (held / "0000000000000009.log").mkdir()  # unlink(2) refuses directories, root's too
    age(state_dir)
    async with Supervisor.open(state_dir) as sup:
        report = await sup.gc(keep=0, apply=True)
        assert (report.count, report.left) == (1, 1)
        await check_collected(sup, run_id)
        (held / "0000000000000009.log").rmdir()
        assert (await sup.gc(keep=0, apply=True)).left == 0
    assert not held.exists()
    with sqlite3.connect(state_dir / "journal.db") as conn:
        assert conn.execute("SELECT count(*) FROM unswept").fetchone() == (0,)
    conn.close()


async def open_and_close(state_dir: Path) -> None:
    async with Supervisor.open(state_dir):
        pass


async def test_what_the_journal_had_no_room_for_is_noted_once(state_dir: Path) -> None:
    """As on a full disk, where every try would take more of it."""
    no_room = "BEGIN SELECT RAISE(FAIL, 'no room'); END"
    async with Supervisor.open(state_dir) as sup:
        run_id = await ended(sup, "once")
        age(state_dir)
        with sqlite3.connect(state_dir / "journal.db") as conn:
            conn.execute(f"CREATE TRIGGER full BEFORE UPDATE OF collected_ns ON runs {no_room}")
        for _ in range(3):
            with pytest.raises(sqlite3.IntegrityError, match="no room"):
                await sup.gc(keep=0, apply=True)
        assert files(state_dir)
        with conn:
            conn.execute("DROP TRIGGER full")
        conn.close()
        assert (await sup.gc(keep=0, apply=True)).left == 0
        assert (await sup.inspect(run_id)).collected_ns is not None
    assert files(state_dir) == []
    assert len(list(CollectedLog(str(state_dir / "runs")).lines())) == 1


async def test_a_collection_that_is_called_off_is_safe(state_dir: Path) -> None:
    async with Supervisor.open(state_dir) as sup:
        run_id = await ended(sup, "one")
    age(state_dir)
    async with Supervisor.open(state_dir) as sup:
        asked = asyncio.create_task(sup.gc(keep=0, apply=True))
        await asyncio.sleep(0)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        again = await sup.start(HELLO, request_id="one")
        assert (again.id, again.admission) == (run_id, "existing")
        closing = asyncio.create_task(sup.gc(keep=0, apply=True))
        await asyncio.sleep(0)
        await sup.close()
        with pytest.raises(SupervisorError) as error:
            await closing
        assert error.value.code is ErrorCode.SUPERVISOR_CLOSED
    async with Supervisor.open(state_dir) as sup:
        assert (await sup.start(HELLO, request_id="one")).id == run_id
        await sup.gc(keep=0, apply=True)
        assert (await sup.inspect(run_id)).collected_ns is not None
    assert files(state_dir) == []
