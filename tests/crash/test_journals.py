"""Journals that are deleted, or restored from a backup, under runs that know more than they do."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from durable_supervisor import RunState, Supervisor, SupervisorError
from durable_supervisor.journal.connection import Journal
from durable_supervisor.model.errors import ErrorCode
from tests.crash.harness import Refused
from tests.crash.world import World, check_guarantees, gapless, requests, start_all
from tests.support import PATIENCE, eventually


async def refused_to_open(world: World, code: ErrorCode) -> None:
    with pytest.raises(SupervisorError) as caught:
        await Supervisor.open(world.state_dir)
    assert caught.value.code is code
    assert "recover" in caught.value.hint


async def each_answers_with_its_run(worlds: list[World], ids: list[str]) -> None:
    """No id executes again, and each is still known as what it was."""
    async with Supervisor.open(worlds[0].state_dir) as sup:
        for one, run in zip(worlds, ids, strict=True):
            again = await one.send(sup)
            assert (again.id, again.admission) == (run, "existing")
            assert one.ledger.begun(one.request_id) == 1


def backup(journal: Path, to: Path) -> None:
    """A proper copy of a live journal, through SQLite."""
    with sqlite3.connect(journal) as source, sqlite3.connect(to) as target:
        source.backup(target)
    source.close()
    target.close()


def restore(journal: Path, copy: Path) -> None:
    for suffix in ("-wal", "-shm"):
        Path(f"{journal}{suffix}").unlink(missing_ok=True)
    shutil.copy(copy, journal)


async def test_the_journal_is_deleted_under_live_runs(world: World) -> None:
    worlds = requests(world, 2)
    with world.host() as host:
        host.opened()
        ids = start_all(host, worlds)
        eventually(lambda: len(world.ledger.lines()) == 2)
        world.journal.unlink()
        for one in worlds:
            with pytest.raises(Refused) as caught:
                host.start(one.argv, one.request_id)
            assert caught.value.code == "JOURNAL_MISSING"
        host.kill()
    await refused_to_open(world, ErrorCode.JOURNAL_MISSING)
    for suffix in ("-wal", "-shm"):
        Path(f"{world.journal}{suffix}").unlink(missing_ok=True)
    await refused_to_open(world, ErrorCode.JOURNAL_MISSING)
    assert len(world.ledger.lines()) == 2
    report = await Supervisor.recover(world.state_dir)
    assert sorted(report["added"]) == sorted(ids)  # type: ignore[call-overload]
    await each_answers_with_its_run(worlds, ids)
    world.ledger.open_gate()
    for one in worlds:
        eventually(lambda one=one: world.ledger.ended(one.request_id) == 5)  # type: ignore[misc]
    for one in worlds:
        await check_guarantees(one, ["finished"])


async def test_an_old_journal_is_restored(world: World, tmp_path: Path) -> None:
    worlds = requests(world, 3)
    with world.host() as host:
        host.opened()
        ids = start_all(host, worlds[:1])
        backup(world.journal, tmp_path / "old.db")
        ids += start_all(host, worlds[1:])
        eventually(lambda: len(world.ledger.lines()) == 3)
        host.kill()
    restore(world.journal, tmp_path / "old.db")
    await refused_to_open(world, ErrorCode.JOURNAL_BEHIND)
    with world.host() as host, pytest.raises(Refused) as caught:
        host.opened()
    assert caught.value.code == "JOURNAL_BEHIND"
    report = await Supervisor.recover(world.state_dir)
    assert sorted(report["added"]) == sorted(ids[1:])  # type: ignore[call-overload]
    await each_answers_with_its_run(worlds, ids)
    world.ledger.open_gate()
    for one in worlds:
        eventually(lambda one=one: world.ledger.ended(one.request_id) == 5)  # type: ignore[misc]
    for one in worlds:
        await check_guarantees(one, ["finished"])


async def test_a_restored_journal_has_missed_the_ends_of_its_runs(world: World, tmp_path: Path) -> None:
    """Not behind on any run: what it has missed is folded anew, and nothing is told differently."""
    [one] = requests(world, 1)
    with world.host() as host:
        host.opened()
        [run] = start_all(host, [one])
        backup(world.journal, tmp_path / "old.db")
        world.ledger.open_gate()
        before = host.ask("wait", run=run)
        host.leave()
    restore(world.journal, tmp_path / "old.db")
    found = await check_guarantees(one, ["finished"])
    assert found is not None
    assert (found.id, found.receipt) == (run, before["receipt"])


@pytest.mark.parametrize("later_runs", [False, True])
async def test_a_restored_journal_has_missed_a_second_attempt(
    world: World, tmp_path: Path, later_runs: bool
) -> None:
    """Its row says retryable, its log says that it ran.  ``later_runs``: far from the newest logs."""
    tool = tmp_path / "tool"
    world.argv = [str(tool), "r-1"]
    async with Supervisor.open(world.state_dir) as sup:
        first = await world.send(sup)
        assert first.state is RunState.NOT_STARTED
    if later_runs:
        await add_row_with_serial(world, 5000)
    backup(world.journal, tmp_path / "old.db")
    tool.write_text(
        f'#!/bin/sh\necho "begin $1 $$" >> "{world.ledger.path}"; echo "end $1 5" >> '
        f'"{world.ledger.path}"; exit 5\n'
    )
    tool.chmod(0o700)
    async with Supervisor.open(world.state_dir) as sup:
        assert (await sup.wait((await world.send(sup)).id, timeout=PATIENCE)).attempt == 2
    restore(world.journal, tmp_path / "old.db")
    with pytest.raises(SupervisorError) as caught:
        async with Supervisor.open(world.state_dir) as sup:  # refused here, or where the log is in the way
            await world.send(sup)
    assert caught.value.code is ErrorCode.JOURNAL_BEHIND
    await Supervisor.recover(world.state_dir)
    found = await check_guarantees(world, ["finished"])
    assert found is not None
    assert (found.id, found.attempt) == (first.id, 2)
    assert world.ledger.begun("r-1") == 1


async def add_row_with_serial(world: World, serial: int) -> None:
    """A settled run of long after, so that the next ones go into another shard."""
    async with await Journal.open(world.journal) as journal:

        def insert(conn: sqlite3.Connection) -> None:
            columns = [row[1] for row in conn.execute("PRAGMA table_info(runs)")]
            changed = {"serial": "?", "run_id": "'later'", "request_id": "'later'", "shard": "'0004'"}
            values = ", ".join(changed.get(name, name) for name in columns)
            conn.execute(f"INSERT INTO runs SELECT {values} FROM runs WHERE serial = 1", (serial,))

        await journal.write(insert)


async def test_an_unaccepted_second_attempt_of_an_old_run_is_no_obstacle(
    world: World, tmp_path: Path
) -> None:
    """The host died between the log and the intent, in a shard that no opening looks at."""
    tool = tmp_path / "tool"
    world.argv = [str(tool), "r-1"]
    async with Supervisor.open(world.state_dir) as sup:
        first = await world.send(sup)
    await add_row_with_serial(world, 5000)
    with world.host("start.log_created=kill") as host:
        host.opened()
        host.tell("start", argv=world.argv, request_id="r-1")
        host.died()
    tool.write_text(f'#!/bin/sh\necho "begin $1 $$" >> "{world.ledger.path}"; exit 5\n')
    tool.chmod(0o700)
    async with Supervisor.open(world.state_dir) as sup:
        again = await world.send(sup)
        assert (again.id, again.attempt) == (first.id, 2)
        final = await sup.wait(again.id, timeout=PATIENCE)
        assert final.outcome is not None
        assert final.outcome.code == 5
        await gapless(sup, again.id)
    assert world.ledger.begun("r-1") == 1
