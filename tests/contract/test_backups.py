"""Old, foreign and broken journals in the place of the right one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from durable_supervisor import (
    Command,
    ErrorCode,
    Observer,
    RunState,
    Supervisor,
    SupervisorError,
)
from tests.contract.hosts import HostScript, check_error, kill_run, open_error, refused
from tests.contract.runs import Marker
from tests.contract.worlds import (
    JOURNAL,
    World,
    a_world,
    check_recovered,
    remove_journal,
    set_aside,
)
from tests.support import PATIENCE, eventually


async def test_an_old_backup(state_dir: Path, marker: Marker, tmp_path: Path) -> None:
    """A copy from before some of the runs were accepted."""
    world = World(state_dir, marker)
    async with Supervisor.open(state_dir) as sup:
        await world.send(sup, "ended")
        await sup.wait(world.ids["ended"], timeout=PATIENCE)
    set_aside(state_dir, tmp_path / "backup")
    async with Supervisor.open(state_dir) as sup:
        for request_id in ("live", "killed", "missing"):
            await world.send(sup, request_id)
        killed = await sup.inspect(world.ids["killed"])
        eventually(lambda: len(world.ledger.read_text().split()) == 3)
    await kill_run(killed)
    remove_journal(state_dir)
    for path in (tmp_path / "backup").iterdir():
        shutil.copy(path, state_dir / path.name)
    os.chmod(state_dir / "journal.db", 0o644)  # as a restore may leave it
    for _ in range(2):
        error = await open_error(state_dir, ErrorCode.JOURNAL_BEHIND)
        assert "recover" in error.hint
    async with Observer.open(state_dir) as seen:
        assert (await seen.inspect(world.ids["live"])).state is RunState.RUNNING
        assert (await seen.events(world.ids["live"])).events
    report = await Supervisor.recover(state_dir)
    assert len(report["added"]) == 3  # type: ignore[arg-type]
    assert (state_dir / "journal.db").stat().st_mode & 0o077 == 0
    await check_recovered(world, report)


HOST = """
async with Supervisor.open(STATE) as sup:
    ids = {}
    for number in range(20):
        script = 'echo "$1" >> "$2"; exec sleep "$3"'
        words = [f"b-{number}", os.environ["LEDGER"], os.environ["MARKER"]]
        command = Command(argv=["sh", "-c", script, "sh", *words])
        ids[f"b-{number}"] = (await sup.start(command, request_id=f"b-{number}")).id
    report(ids=ids)
    await stay()
"""


async def test_a_backup_put_beside_a_newer_wal(state_dir: Path, marker: Marker, tmp_path: Path) -> None:
    """The host was killed, and only journal.db restored: whatever SQLite makes of both, no id runs twice."""
    world = World(state_dir, marker)
    async with Supervisor.open(state_dir) as sup:
        await world.send(sup, "ended")
        await sup.wait(world.ids["ended"], timeout=PATIENCE)
    set_aside(state_dir, tmp_path / "backup")
    async with Supervisor.open(state_dir) as sup:
        await world.send(sup, "live")
    env = {"LEDGER": str(world.ledger), "MARKER": str(marker)}
    with HostScript(HOST, state_dir, tmp_path, env=env) as owner:
        world.ids |= owner.facts()["ids"]
        owner.kill()
    assert (state_dir / "journal.db-wal").stat().st_size > 0
    eventually(lambda: len(world.ledger.read_text().split()) == 22)
    shutil.copy(tmp_path / "backup" / "journal.db", state_dir / "journal.db")
    try:
        async with Supervisor.open(state_dir) as sup:
            assert {view.id for view in (await sup.list(limit=100)).runs} >= set(world.ids.values())
    except SupervisorError as error:
        check_error(error, ErrorCode.JOURNAL_BEHIND, ErrorCode.JOURNAL_CORRUPT)
    await Supervisor.recover(state_dir)
    async with Supervisor.open(state_dir) as sup:
        for request_id in ("ended", "live"):
            assert (await world.send(sup, request_id)).id == world.ids[request_id]
        listed = {view.request_id: view.id for view in (await sup.list(limit=100)).runs}
        assert listed == world.ids
        await sup.shutdown(timeout=PATIENCE)
    assert sorted(world.ledger.read_text().split()) == sorted(world.ids)


async def test_a_backup_of_while_a_run_was_open(state_dir: Path, marker: Marker, tmp_path: Path) -> None:
    """It knows all runs, only less about them: the logs tell the rest, without `recover`."""
    world = World(state_dir, marker)
    async with Supervisor.open(state_dir) as sup:
        await world.send(sup, "live")
    set_aside(state_dir, tmp_path / "backup")
    async with Supervisor.open(state_dir) as sup:
        await sup.stop(world.ids["live"])
        await sup.reconcile()
    remove_journal(state_dir)
    for path in (tmp_path / "backup").iterdir():
        shutil.copy(path, state_dir / path.name)
    async with Supervisor.open(state_dir) as sup:
        seen = await sup.inspect(world.ids["live"])
        assert seen.state is RunState.FINISHED
        assert (await world.send(sup, "live")).id == world.ids["live"]
    assert world.executed("live") == 1


async def test_a_backup_from_before_a_second_attempt(state_dir: Path, tmp_path: Path) -> None:
    """The id may have been executed by the attempt that the backup does not know."""
    program = tmp_path / "late"
    ledger = tmp_path / "ledger"
    command = Command(argv=[str(program), str(ledger)])
    async with Supervisor.open(state_dir) as sup:
        first = await sup.start(command, request_id="one")
        assert first.state is RunState.NOT_STARTED
    set_aside(state_dir, tmp_path / "backup")
    program.write_text('#!/bin/sh\necho ran >> "$1"\n')
    program.chmod(0o755)
    async with Supervisor.open(state_dir) as sup:
        second = await sup.start(command, request_id="one")
        assert (second.id, second.attempt) == (first.id, 2)
        await sup.wait(second.id, timeout=PATIENCE)
    remove_journal(state_dir)
    for path in (tmp_path / "backup").iterdir():
        shutil.copy(path, state_dir / path.name)
    await open_error(state_dir, ErrorCode.JOURNAL_BEHIND)
    report = await Supervisor.recover(state_dir)
    assert report["advanced"] == [first.id]
    async with Supervisor.open(state_dir) as sup:
        again = await sup.start(command, request_id="one")
        assert (again.id, again.attempt, again.state) == (first.id, 2, RunState.FINISHED)
    assert ledger.read_text() == "ran\n"


async def test_another_directorys_journal(state_dir: Path, marker: Marker, tmp_path: Path) -> None:
    async with a_world(state_dir, marker) as world:
        other = tmp_path / "other"
        async with Supervisor.open(other) as sup:
            for number in range(6):
                run = await sup.start(Command(argv=["true"]), request_id=f"theirs-{number}")
                await sup.wait(run.id, timeout=PATIENCE)
        remove_journal(state_dir)
        for name in JOURNAL:
            if (other / name).exists():
                shutil.copy(other / name, state_dir / name)
        error = await open_error(state_dir, ErrorCode.JOURNAL_MISMATCH, ErrorCode.JOURNAL_BEHIND)
        assert "recover" in error.hint
        async with Observer.open(state_dir) as seen:
            assert (await seen.inspect(world.ids["ended"])).state is RunState.FINISHED
        foreign = (state_dir / "journal.db").read_bytes()
        report = await Supervisor.recover(state_dir)
        assert set(report["added"]) == set(world.ids.values())  # type: ignore[call-overload]
        aside = Path(str(report["old_journal"]))
        assert aside.read_bytes() == foreign
        await check_recovered(world, report)
        async with Observer.open(state_dir) as seen:
            assert not [view for view in (await seen.list()).runs if view.request_id.startswith("theirs")]


async def test_a_fresh_journal_beside_logs(state_dir: Path, marker: Marker, tmp_path: Path) -> None:
    """As an operator makes one who means well."""
    async with a_world(state_dir, marker) as world:
        other = tmp_path / "other"
        async with Supervisor.open(other):
            pass
        remove_journal(state_dir)
        shutil.copy(other / "journal.db", state_dir / "journal.db")
        await open_error(state_dir, ErrorCode.JOURNAL_MISMATCH)
        report = await Supervisor.recover(state_dir)
        await check_recovered(world, report)


async def test_a_corrupt_journal_under_live_runs(state_dir: Path, marker: Marker) -> None:
    async with a_world(state_dir, marker) as world:
        for name in JOURNAL[1:]:
            (state_dir / name).unlink(missing_ok=True)
        (state_dir / "journal.db").write_bytes(os.urandom(20_000))
        await open_error(state_dir, ErrorCode.JOURNAL_CORRUPT)
        async with Observer.open(state_dir) as seen, refused(ErrorCode.JOURNAL_CORRUPT):
            await seen.list()
        report = await Supervisor.recover(state_dir)
        await check_recovered(world, report)
