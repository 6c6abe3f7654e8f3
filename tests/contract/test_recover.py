"""A lost, old, foreign or broken journal: nothing runs twice, reading goes on, `recover` brings it back."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from durable_supervisor import (
    Command,
    ErrorCode,
    Limits,
    Observer,
    RunState,
    RunView,
    Supervisor,
    SupervisorError,
)
from tests.contract.hosts import HostScript, check_error, kill_run, log_of, open_error, refused
from tests.contract.runs import Marker
from tests.support import eventually, reap_state_dir

JOURNAL = ("journal.db", "journal.db-wal", "journal.db-shm")


class World:
    """Requests whose programs write down each execution, and what became of them."""

    def __init__(self, state_dir: Path, marker: Marker) -> None:
        self.state_dir = state_dir
        self.ledger = state_dir.parent / "ledger"
        self.marker = marker
        self.ids: dict[str, str] = {}

    def command(self, request_id: str) -> Command:
        body = {
            "ended": "exit 7",
            "live": f"exec sleep {self.marker}",
            "live2": f"exec sleep {self.marker}",
            "killed": f"exec sleep {self.marker}",
        }
        if request_id == "missing":
            return Command(argv=["/no/such/program"])
        script = f'echo {request_id} >> "$1"; {body.get(request_id, "exit 0")}'
        return Command(
            argv=["sh", "-c", script, "sh", str(self.ledger)], env={"GIVEN": "value-of-" + request_id}
        )

    async def send(self, sup: Supervisor, request_id: str) -> Any:
        limits = Limits(timeout=600, grace=2)
        run = await sup.start(
            self.command(request_id), request_id=request_id, limits=limits, labels={"made": "here"}
        )
        self.ids.setdefault(request_id, run.id)
        return run

    def executed(self, request_id: str) -> int:
        return self.ledger.read_text().split().count(request_id)


@asynccontextmanager
async def a_world(state_dir: Path, marker: Marker) -> AsyncIterator[World]:
    """An ended run, a live one, one whose worker was killed, one that never started; no owner is left."""
    world = World(state_dir, marker)
    async with Supervisor.open(state_dir) as sup:
        for request_id in ("ended", "live", "killed", "missing"):
            await world.send(sup, request_id)
        await sup.wait(world.ids["ended"], timeout=10)
        killed = await sup.inspect(world.ids["killed"])
        eventually(lambda: len(world.ledger.read_text().split()) == 3)
    await kill_run(killed)
    yield world


def set_aside(state_dir: Path, to: Path) -> None:
    to.mkdir()
    for name in JOURNAL:
        if (state_dir / name).exists():
            shutil.copy(state_dir / name, to / name)


def remove_journal(state_dir: Path) -> None:
    for name in JOURNAL:
        (state_dir / name).unlink(missing_ok=True)


async def check_readable(world: World) -> None:
    """Without a usable journal: everything can be looked at, and live runs controlled."""
    async with Observer.open(world.state_dir) as seen:
        listed = {view.request_id: view for view in (await seen.list()).runs}
        assert set(world.ids) <= set(listed)
        ended = await seen.inspect(world.ids["ended"])
        assert (ended.state, ended.outcome and ended.outcome.code) == (RunState.FINISHED, 7)
        assert (await seen.inspect(world.ids["live"])).state is RunState.RUNNING
        assert (await seen.inspect(world.ids["killed"])).state is RunState.UNKNOWN
        assert (await seen.inspect(world.ids["missing"])).state is RunState.NOT_STARTED
        page = await seen.events(world.ids["ended"])
        assert page.end
        follower = [event async for event in seen.follow(world.ids["ended"])]
        assert follower == page.events
        final = await seen.wait(world.ids["ended"], timeout=5)
        assert final.receipt == ended.receipt


async def check_recovered(world: World, report: dict[str, object]) -> None:
    """Each id answers with its run; nothing was executed again."""
    assert report["conflicts"] == []
    async with Supervisor.open(world.state_dir) as sup:
        for request_id, run_id in world.ids.items():
            if request_id == "missing":
                continue
            again = await world.send(sup, request_id)
            assert (again.id, again.admission, again.attempt) == (run_id, "existing", 1), request_id
            assert world.executed(request_id) == 1
        async with refused(ErrorCode.IDEMPOTENCY_CONFLICT):
            await sup.start(Command(argv=["echo"]), request_id="ended")
        states = {view.request_id: view for view in (await sup.list()).runs}
        assert states["ended"].state is RunState.FINISHED
        assert states["live"].state is RunState.RUNNING
        assert states["killed"].state is RunState.UNKNOWN
        assert states["ended"].labels == {"made": "here"}
        assert states["live"].limits["timeout"] == 600
        # What provably never ran is tried again, as the second attempt of the same run.
        retried = await world.send(sup, "missing")
        assert (retried.id, retried.attempt, retried.state) == (world.ids["missing"], 2, RunState.NOT_STARTED)
        fresh = await world.send(sup, "fresh")
        await sup.wait(fresh.id, timeout=10)
        assert fresh.id not in list(world.ids.values())[:-1]
        stopped = await sup.stop(world.ids["live"])
        assert stopped.confirmed
        page = await sup.events(world.ids["live"], limit=1000)
        assert [event.seq for event in page.events] == list(range(1, len(page.events) + 1))
        assert page.end
        feed = await sup.feed(limit=1000)
        assert [entry.position for entry in feed] == sorted({entry.position for entry in feed})


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
        await sup.wait(world.ids["ended"], timeout=10)
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


async def test_an_old_backup(state_dir: Path, marker: Marker, tmp_path: Path) -> None:
    """A copy from before some of the runs were accepted."""
    world = World(state_dir, marker)
    async with Supervisor.open(state_dir) as sup:
        await world.send(sup, "ended")
        await sup.wait(world.ids["ended"], timeout=10)
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
    await asyncio.sleep(60)
"""


async def test_a_backup_put_beside_a_newer_wal(state_dir: Path, marker: Marker, tmp_path: Path) -> None:
    """The host was killed, and only journal.db restored: whatever SQLite makes of both, no id runs twice."""
    world = World(state_dir, marker)
    async with Supervisor.open(state_dir) as sup:
        await world.send(sup, "ended")
        await sup.wait(world.ids["ended"], timeout=10)
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
        await sup.shutdown(timeout=10)
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
        await sup.wait(second.id, timeout=10)
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
                await sup.wait(run.id, timeout=10)
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
            await sup.wait(fresh.id, timeout=10)
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
        await sup.wait(run.id, timeout=10)


async def test_a_log_that_lost_its_header_is_named(state_dir: Path, marker: Marker, tmp_path: Path) -> None:
    """The rest come back; what cannot is told, with the way out."""
    async with a_world(state_dir, marker) as world:
        path = log_of(state_dir, world.ids["ended"])
        content = path.read_bytes()
        path.write_bytes(b"\0" * 600 + content[600:])
        os.mkfifo(state_dir / "runs" / "0000" / "0000000000000000.a1.log")
        remove_journal(state_dir)
        async with asyncio.timeout(10):
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


async def test_an_intent_that_was_never_committed_is_swept(state_dir: Path) -> None:
    """A header-only log without a row: never accepted.  One with a record, or a lock, was."""
    async with Supervisor.open(state_dir) as sup:
        run = await sup.start(Command(argv=["true"]))
        await sup.wait(run.id, timeout=10)
        final: RunView = await sup.inspect(run.id)
    path = log_of(state_dir, run.id)
    orphan = path.with_name("00000000000000zz.a1.log")
    orphan.touch(0o600)
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
