"""A copy of a directory that is in use, and both of them in use afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from durable_supervisor import ErrorCode, Observer, RunState, Supervisor, SupervisorError
from durable_supervisor.model.events import Event, Kind
from durable_supervisor.upkeep.backup import backup
from tests.cli.helpers import COMMAND, Cli, environment
from tests.contract.hosts import log_of, open_error, refused
from tests.contract.runs import Marker, check_gapless
from tests.contract.worlds import remove_journal
from tests.gc.aging import age
from tests.support import PATIENCE
from tests.upkeep.busy import Busy


async def events_of(observer: Observer, run_id: str) -> list[Event]:
    found: list[Event] = []
    while page := (await observer.events(run_id, after=len(found), limit=1000)).events:
        found += page
    return found


async def test_beside_twenty_runs_that_write(state_dir: Path, marker: Marker, tmp_path: Path) -> None:
    """Both directories are in use at once: nothing runs twice, no signal goes from copy to original."""
    busy, dest = Busy(tmp_path, marker), tmp_path / "copy"
    async with Supervisor.open(state_dir) as sup:
        live = {f"live-{number}": (await busy.send(sup, f"live-{number}")).id for number in range(20)}
        ended = await busy.send(sup, "ended-1")
        await sup.wait(ended.id, timeout=PATIENCE)
        missing = await busy.send(sup, "missing-1")
        busy.wait_for(5)  # the others are still on their way
        told: list[tuple[str, int, int]] = []
        report = await backup(dest, state_dir=state_dir, tell=lambda *word: told.append(word))
        assert (report.runs, report.not_retried, set(report.unsettled)) == (22, 1, set(live.values()))
        assert told[0] == ("copying", 0, 22)
        assert {step for step, _, _ in told} == {"copying", "syncing", "reading it back"}
        late = await busy.send(sup, "live-late")
        busy.wait_for(22)
        async with Supervisor.open(dest) as copy:
            assert len((await copy.list()).runs) == 22
            for request_id, run_id in live.items():
                seen = await copy.inspect(run_id)
                assert (seen.state, seen.reason, seen.retryable) == (RunState.UNKNOWN, "copied", False)
                assert (await busy.send(copy, request_id)).admission == "existing"
                await check_prefix(copy, sup, run_id)
                async with refused(ErrorCode.NOT_CONFIRMED):
                    await copy.resolve(run_id, "kill")
            assert (await copy.resolve(live["live-0"], "accept")).state is RunState.UNKNOWN
            assert await events_of(copy, ended.id) == await events_of(sup, ended.id)
            assert (await copy.inspect(ended.id)).receipt == (await sup.inspect(ended.id)).receipt
            again = await busy.send(copy, "missing-1")
            assert (again.id, again.attempt, again.admission) == (missing.id, 1, "existing")
            fresh = await busy.send(copy, "ended-fresh")
            assert (await copy.wait(fresh.id, timeout=PATIENCE)).state is RunState.FINISHED
            await copy.shutdown(stop_runs=True, timeout=PATIENCE)
        for run_id in (*live.values(), late.id):
            assert (await sup.inspect(run_id)).state is RunState.RUNNING
        assert not busy.notes("signal")
        assert set(busy.notes("ran").values()) == {1}
        await sup.shutdown(stop_runs=True, timeout=PATIENCE)
    assert marker.alive() == []


async def check_prefix(copy: Observer, original: Observer, run_id: str) -> None:
    """Event for event the same, up to the copy's own last word."""
    copied = await events_of(copy, run_id)
    check_gapless(copied)
    assert copied[-1].kind == Kind.RUN_UNKNOWN
    assert copied[-1].detail["reason"] == "copied"
    assert copied[:-1] == (await events_of(original, run_id))[: len(copied) - 1]


async def test_what_waits_may_have_been_let_go_since(state_dir: Path, marker: Marker, tmp_path: Path) -> None:
    busy, dest = Busy(tmp_path, marker), tmp_path / "copy"
    async with Supervisor.open(state_dir, max_concurrent_runs=1) as sup:
        first = await busy.send(sup, "live-1")
        waiting = await busy.send(sup, "ended-2", queue=True)
        assert waiting.state is RunState.QUEUED
        await backup(dest, state_dir=state_dir)
        await sup.stop(first.id, grace=0)
        await sup.wait(waiting.id, timeout=PATIENCE)
    async with Supervisor.open(dest) as copy:
        again = await busy.send(copy, "ended-2")
        assert (again.id, again.state, again.reason) == (waiting.id, RunState.UNKNOWN, "copied")
    assert busy.notes("ran")["ended-2"] == 1


async def test_what_the_copy_is_made_of(state_dir: Path, marker: Marker, tmp_path: Path) -> None:
    """Private, complete, with a manifest that says so; and the original is as it was."""
    busy, dest = Busy(tmp_path, marker), tmp_path / "copy"
    async with Supervisor.open(state_dir) as sup:
        await sup.wait((await busy.send(sup, "ended-1")).id, timeout=PATIENCE)
    report = await backup(dest, state_dir=state_dir)  # and nobody owns it
    names = {str(path.relative_to(dest)) for path in dest.rglob("*") if path.is_file()}
    manifest = json.loads((dest / "backup.json").read_text())
    assert names == {*manifest["files"], "backup.json"}
    assert {"journal.db", "key"} < names
    assert manifest["directory_id"] == report.directory_id != report.original
    for path in (dest, *dest.rglob("*")):
        mode = stat.S_IMODE(path.lstat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path
    assert sorted(os.listdir(tmp_path)) == ["copy", "ledger", "state"]


async def test_a_copy_takes_the_originals_place(state_dir: Path, marker: Marker, tmp_path: Path) -> None:
    """The original is lost, but for its workers; a copy of the copy is one as well."""
    busy = Busy(tmp_path, marker)
    async with Supervisor.open(state_dir) as sup:
        run = await busy.send(sup, "live-1")
        busy.wait_for(1)
    await backup(tmp_path / "copy", state_dir=state_dir)
    await backup(tmp_path / "second", state_dir=tmp_path / "copy")
    os.rename(state_dir, tmp_path / "lost")
    os.rename(tmp_path / "second", state_dir)
    async with Supervisor.open(state_dir) as sup:
        assert (await busy.send(sup, "live-1")).state is RunState.UNKNOWN
        fresh = await busy.send(sup, "live-2")
        busy.wait_for(2)
        assert (await sup.stop(fresh.id, grace=0)).confirmed
        assert (await sup.stop(run.id)).result == "already_ended"
    assert busy.notes("signal")["live-1"] == 0
    async with Supervisor.open(tmp_path / "lost") as sup:
        assert (await sup.stop(run.id, grace=0)).confirmed
    assert set(busy.notes("ran").values()) == {1}


async def test_a_copy_that_loses_its_journal(state_dir: Path, marker: Marker, tmp_path: Path) -> None:
    """What it is, and what it does not know, does not stand in the journal alone."""
    busy, dest = Busy(tmp_path, marker), tmp_path / "copy"
    async with Supervisor.open(state_dir) as sup:
        run, _ = await busy.send(sup, "live-1"), await busy.send(sup, "missing-1")
        busy.wait_for(1)
        await backup(dest, state_dir=state_dir)
        remove_journal(dest)
        await open_error(dest, ErrorCode.JOURNAL_MISSING)
        await Supervisor.recover(dest)
        async with Supervisor.open(dest) as copy:
            seen = await copy.inspect(run.id)
            assert (seen.state, seen.reason) == (RunState.UNKNOWN, "copied")
            async with refused(ErrorCode.NOT_CONFIRMED):
                await copy.resolve(run.id, "kill")
            assert (await busy.send(copy, "missing-1")).attempt == 1
        assert (await sup.inspect(run.id)).state is RunState.RUNNING
        await sup.stop(run.id, grace=0)


async def test_the_journal_of_a_copy_is_not_the_originals(
    state_dir: Path, marker: Marker, tmp_path: Path
) -> None:
    """Put in its place, it would call runs unknown that go on."""
    busy, dest = Busy(tmp_path, marker), tmp_path / "copy"
    async with Supervisor.open(state_dir) as sup:
        run = await busy.send(sup, "live-1")
        busy.wait_for(1)
    await backup(dest, state_dir=state_dir)
    remove_journal(state_dir)
    shutil.copy(dest / "journal.db", state_dir / "journal.db")
    await open_error(state_dir, ErrorCode.JOURNAL_MISMATCH)
    await Supervisor.recover(state_dir)
    async with Supervisor.open(state_dir) as sup:
        assert (await sup.inspect(run.id)).state is RunState.RUNNING
        assert (await busy.send(sup, "live-1")).admission == "existing"
        await sup.stop(run.id, grace=0)


async def test_collected_runs_are_so_in_the_copy(state_dir: Path, marker: Marker, tmp_path: Path) -> None:
    busy, dest = Busy(tmp_path, marker), tmp_path / "copy"
    async with Supervisor.open(state_dir) as sup:
        runs = [await busy.send(sup, f"ended-{number}") for number in range(3)]
        for run in runs:
            await sup.wait(run.id, timeout=PATIENCE)
        await sup.reconcile()
    age(state_dir)
    async with Supervisor.open(state_dir) as sup:
        assert (await sup.gc(keep=1, apply=True)).count == 2
        report = await backup(dest, state_dir=state_dir)
    assert (report.runs, report.collected) == (1, 2)
    remove_journal(dest)
    await Supervisor.recover(dest)  # collected.log is the copy's too
    async with Supervisor.open(dest) as copy:
        for number, run in enumerate(runs):
            again = await busy.send(copy, f"ended-{number}")
            assert (again.id, again.admission, again.state) == (run.id, "existing", RunState.FINISHED)
    assert set(busy.notes("ran").values()) == {1}


async def test_a_place_that_cannot_be_used(state_dir: Path, tmp_path: Path) -> None:
    async with Supervisor.open(state_dir):
        pass  # makes it
    (tmp_path / "taken").mkdir()
    for dest in (tmp_path / "taken", tmp_path / "no" / "such", state_dir / "inside", tmp_path / "nul\0"):
        with pytest.raises(SupervisorError) as error:
            await backup(dest, state_dir=state_dir)
        assert error.value.code is ErrorCode.INVALID_REQUEST
        assert error.value.details["field"] == "dest"
    with pytest.raises(SupervisorError) as error:
        await backup(tmp_path / "copy", state_dir=tmp_path / "none")
    assert error.value.code is ErrorCode.JOURNAL_MISSING
    (state_dir / "key").unlink()
    with pytest.raises(SupervisorError) as error:
        await backup(tmp_path / "copy", state_dir=state_dir)
    assert error.value.code is ErrorCode.STATE_DIR_REFUSED
    assert sorted(os.listdir(tmp_path)) == ["state", "taken"]


async def test_one_that_is_cancelled_leaves_nothing(state_dir: Path, marker: Marker, tmp_path: Path) -> None:
    busy = Busy(tmp_path, marker)
    async with Supervisor.open(state_dir) as sup:
        await sup.wait((await busy.send(sup, "ended-1")).id, timeout=PATIENCE)
        begun = asyncio.Event()
        copying = asyncio.create_task(
            backup(tmp_path / "copy", state_dir=state_dir, tell=lambda *_: begun.set())
        )
        await begun.wait()
        copying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await copying
    assert sorted(os.listdir(tmp_path)) == ["ledger", "state"]


async def test_a_log_that_cannot_be_read(state_dir: Path, marker: Marker, tmp_path: Path) -> None:
    """It harms only itself, and is told of."""
    busy, dest = Busy(tmp_path, marker), tmp_path / "copy"
    async with Supervisor.open(state_dir) as sup:
        runs = [await busy.send(sup, f"ended-{number}") for number in range(2)]
        for run in runs:
            await sup.wait(run.id, timeout=PATIENCE)
    folder = log_of(state_dir, runs[0].id).with_suffix(".seg")
    folder.mkdir(mode=0o700, exist_ok=True)
    os.symlink("/etc/passwd", folder / f"{9_999_999:016d}.log")
    report = await backup(dest, state_dir=state_dir)
    assert set(report.left_out) == {runs[0].id}
    assert not [path for path in dest.rglob("*") if path.is_symlink()]
    async with Supervisor.open(dest) as copy:
        assert (await busy.send(copy, "ended-0")).state is RunState.FINISHED
        assert (await events_of(copy, runs[1].id))[-1].kind == Kind.RUN_FINISHED


def test_no_space(state_dir: Path, tmp_path: Path) -> None:
    """Nothing is left of it, and the original is well."""
    cli = Cli(state_dir)
    cli("run", "--", "sh", "-c", "head -c 400000 /dev/urandom | od")
    command = shlex.join([*COMMAND, "backup", "--json", str(tmp_path / "copy")])
    done = subprocess.run(
        ["sh", "-c", f"ulimit -f 800; exec {command}"],  # 400 KiB a file, as a full disk would
        env=environment(state_dir), capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 5, done
    assert json.loads(done.stderr)["error"]["code"] == "NO_SPACE"
    assert os.listdir(tmp_path) == ["state"]
    cli.ok("verify")
