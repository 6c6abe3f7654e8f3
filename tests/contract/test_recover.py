"""A lost, old, foreign or broken journal: nothing runs twice, reading goes on, `recover` brings it back."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from durable_supervisor import (
    Command,
    ErrorCode,
    Limits,
    Observer,
    RunState,
    RunView,
    Supervisor,
)
from durable_supervisor.runlog.format import SEGMENT_MAGIC
from tests.contract.hosts import log_of, open_error, refused
from tests.contract.runs import Marker
from tests.contract.worlds import (
    World,
    a_world,
    check_readable,
    check_recovered,
    remove_journal,
)
from tests.support import PATIENCE, reap_state_dir


async def test_a_deleted_journal(state_dir: Path, marker: Marker) -> None:
    async with a_world(state_dir, marker) as world:
        remove_journal(state_dir)
        for _ in range(2):
            error = await open_error(state_dir, ErrorCode.JOURNAL_MISSING)
            assert "recover" in error.hint
        assert not (state_dir / "journal.db").exists(), "a refusal makes no new journal"
        await check_readable(world)
        assert not (state_dir / "journal.db").exists(), "and neither does reading"
        report = await Supervisor.recover(state_dir)
        assert set(report["added"]) == set(world.ids.values())  # type: ignore[call-overload]
        again = await Supervisor.recover(state_dir)
        assert (again["added"], again["advanced"]) == ([], []), "recovering twice changes nothing"
        await check_recovered(world, report)


async def test_a_journal_emptied_or_deleted_without_its_wal(state_dir: Path, marker: Marker) -> None:
    async with a_world(state_dir, marker) as world:
        os.truncate(state_dir / "journal.db", 0)
        await open_error(state_dir, ErrorCode.JOURNAL_MISSING)
        await check_readable(world)
        report = await Supervisor.recover(state_dir)
        await check_recovered(world, report)


async def test_a_journal_deleted_under_its_owner(state_dir: Path, marker: Marker) -> None:
    """The owner notices at the next start; what runs, runs on, and nothing is lost."""
    world = World(state_dir, marker)
    async with Supervisor.open(state_dir) as sup:
        for request_id in ("ended", "live", "live2", "missing"):
            await world.send(sup, request_id)
        await sup.wait(world.ids["ended"], timeout=PATIENCE)
        remove_journal(state_dir)
        for request_id in ("ended", "live", "new"):
            async with refused(ErrorCode.JOURNAL_MISSING):
                await world.send(sup, request_id)
        assert (await sup.stop(world.ids["live2"])).confirmed
    assert not (state_dir / "journal.db").exists()
    await open_error(state_dir, ErrorCode.JOURNAL_MISSING)
    report = await Supervisor.recover(state_dir)
    assert set(report["added"]) == set(world.ids.values())  # type: ignore[call-overload]
    async with Supervisor.open(state_dir) as sup:
        for request_id in ("ended", "live", "live2"):
            assert (await world.send(sup, request_id)).id == world.ids[request_id]
            assert world.executed(request_id) == 1
        assert (await sup.inspect(world.ids["live2"])).outcome is not None
        assert (await world.send(sup, "new")).admission == "new", "the refusal had not spent the id"
        await sup.stop(world.ids["live"])


async def test_a_lost_key_makes_known_ids_conflict_and_never_run(state_dir: Path, marker: Marker) -> None:
    """Digests cannot be compared without it: an id that is spent stays spent."""
    async with a_world(state_dir, marker) as world:
        (state_dir / "key").unlink()
        error = await open_error(state_dir, ErrorCode.STATE_DIR_REFUSED)
        assert "recover" in error.hint
        await check_readable(world)
        await Supervisor.recover(state_dir)
        async with Supervisor.open(state_dir) as sup:
            for request_id in world.ids:
                async with refused(ErrorCode.IDEMPOTENCY_CONFLICT) as caught:
                    await world.send(sup, request_id)
                assert caught().details["run_id"] == world.ids[request_id]
            assert [world.executed(one) for one in ("ended", "live", "killed")] == [1, 1, 1]
            fresh = await world.send(sup, "fresh")
            await sup.wait(fresh.id, timeout=PATIENCE)
            assert (await world.send(sup, "fresh")).id == fresh.id
            await sup.stop(world.ids["live"])


async def test_recover_leaves_a_sound_directory_as_it_is(state_dir: Path, marker: Marker) -> None:
    async with a_world(state_dir, marker) as world:
        async with Supervisor.open(state_dir) as sup:
            before = [view.to_dict() for view in (await sup.list()).runs]
            feed = await sup.feed(limit=1000)
        report = await Supervisor.recover(state_dir)
        assert (report["added"], report["advanced"], report["conflicts"]) == ([], [], [])
        assert report["old_journal"] is None
        async with Supervisor.open(state_dir) as sup:
            assert [view.to_dict() for view in (await sup.list()).runs] == before
            assert await sup.feed(limit=1000) == feed
        await check_recovered(world, report)


async def test_recover_of_nothing(tmp_path: Path) -> None:
    report = await Supervisor.recover(tmp_path / "new")
    assert (report["added"], report["conflicts"]) == ([], [])
    async with Supervisor.open(tmp_path / "new") as sup:
        run = await sup.start(Command(argv=["true"]))
        await sup.wait(run.id, timeout=PATIENCE)


async def test_a_log_that_lost_its_header_is_named(state_dir: Path, marker: Marker, tmp_path: Path) -> None:
    """The rest come back; what cannot is told, with the way out."""
    async with a_world(state_dir, marker) as world:
        path = log_of(state_dir, world.ids["ended"])
        content = path.read_bytes()
        path.write_bytes(b"\0" * 600 + content[600:])
        os.mkfifo(state_dir / "runs" / "0000" / "0000000000000000.a1.log")
        remove_journal(state_dir)
        async with asyncio.timeout(PATIENCE):
            report = await Supervisor.recover(state_dir)
        added = set(report["added"])  # type: ignore[call-overload]
        assert {world.ids[name] for name in ("live", "killed", "missing")} <= added
        assert report["conflicts"] == [
            {"run_id": world.ids["ended"], "problem": "header_damaged", "other_run_id": None}
        ]
        # Its request id is gone, so any new request might be it: an operator has to say.
        error = await open_error(state_dir, ErrorCode.JOURNAL_BEHIND)
        assert error.details["log"] == str(path)
        os.rename(path, tmp_path / "moved.log")
        async with Supervisor.open(state_dir) as sup:
            assert (await sup.inspect(world.ids["live"])).state is RunState.RUNNING
            await sup.stop(world.ids["live"])


def spoiled_segment(log: Path) -> None:
    last = max(log.with_suffix(".seg").iterdir())
    last.rename(log.with_name("moved"))
    last.symlink_to(log.with_name("moved"))


def spoiled_folder(log: Path) -> None:
    folder = log.with_suffix(".seg")
    folder.rename(log.with_name("moved"))
    folder.symlink_to(folder)  # a loop: not to be listed, by root neither


def stray_attempt(log: Path) -> None:
    log.with_name(log.name.replace(".a1.", ".a99999999999999999999.")).write_bytes(b"junk")


@pytest.mark.parametrize("spoil", [spoiled_segment, spoiled_folder, stray_attempt])
async def test_a_log_spoiled_behind_its_header_harms_no_other_and_keeps_its_id_spent(
    state_dir: Path, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    program = Command(argv=["sh", "-c", f"echo x >> {tmp_path}/runs; yes | head -c 600000; sleep 0.2"])
    limits = Limits(max_stdout_bytes=400_000)
    async with Supervisor.open(state_dir) as sup:
        run = await sup.start(program, request_id="one", limits=limits)
        other = await sup.start(Command(argv=["sh", "-c", "exit 3"]), request_id="other")
        await sup.wait(other.id, timeout=PATIENCE)
    async with Observer.open(state_dir) as eyes:
        await eyes.wait(run.id, timeout=PATIENCE)
        spoil(log_of(state_dir, run.id))  # the journal has not got its end yet
        assert {seen.id for seen in (await eyes.list()).runs} == {run.id, other.id}
        await eyes.inspect(run.id)
        await eyes.events(run.id)
    for lost in (False, True):
        if lost:
            remove_journal(state_dir)
        async with asyncio.timeout(PATIENCE):
            await Supervisor.recover(state_dir)
        async with Supervisor.open(state_dir) as sup:
            await sup.reconcile()
            assert (await sup.start(program, request_id="one", limits=limits)).id == run.id
            outcome = (await sup.inspect(other.id)).outcome
            assert outcome is not None
            assert outcome.code == 3
    assert (tmp_path / "runs").read_text() == "x\n"


async def test_a_folder_of_logs_that_cannot_be_looked_into_refuses_starts_by_name(state_dir: Path) -> None:
    """It may hold any request id.  Reading goes on, and all is well once it is back."""
    async with Supervisor.open(state_dir) as sup:
        run = await sup.start(Command(argv=["true"]))
        await sup.wait(run.id, timeout=PATIENCE)
    shard = state_dir / "runs" / "0000"
    shard.rename(state_dir / "moved")
    shard.write_bytes(b"junk")
    error = await open_error(state_dir, ErrorCode.STATE_DIR_REFUSED)
    assert str(shard) in error.message
    async with refused(ErrorCode.STATE_DIR_REFUSED):
        await Supervisor.recover(state_dir)
    async with Observer.open(state_dir) as eyes:
        assert [seen.id for seen in (await eyes.list()).runs] == [run.id]
    shard.unlink()
    (state_dir / "moved").rename(shard)
    async with Supervisor.open(state_dir) as sup:
        assert (await sup.inspect(run.id)).state is RunState.FINISHED


@pytest.mark.parametrize("left", [b"", SEGMENT_MAGIC, SEGMENT_MAGIC + bytes(400), bytes(408)])
async def test_an_intent_that_was_never_committed_is_swept(state_dir: Path, left: bytes) -> None:
    """A header-only log without a row: never accepted.  One with a record, or a lock, was.

    Of the header all may be lost with the power, also where the file was made ahead.
    """
    async with Supervisor.open(state_dir) as sup:
        run = await sup.start(Command(argv=["true"]))
        await sup.wait(run.id, timeout=PATIENCE)
        final: RunView = await sup.inspect(run.id)
    path = log_of(state_dir, run.id)
    orphan = path.with_name("00000000000000zz.a1.log")
    orphan.touch(0o600)
    orphan.write_bytes(left)
    async with Supervisor.open(state_dir) as sup:
        assert not orphan.exists()
        assert (await sup.inspect(run.id)).receipt == final.receipt
    with sqlite3.connect(state_dir / "journal.db") as conn:
        assert conn.execute("SELECT count(*) FROM runs").fetchone() == (1,)
    conn.close()
    reap_state_dir(state_dir)


async def test_while_somebody_owns_it_recover_waits_its_turn(state_dir: Path) -> None:
    async with Supervisor.open(state_dir), refused(ErrorCode.STATE_DIR_IN_USE):
        await Supervisor.recover(state_dir, wait=0)
