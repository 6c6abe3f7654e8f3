"""Power loss, replayed: what was synced stays, of the rest any subset of blocks may be gone.

A reboot also ends every process and changes the boot id.  Here the processes are
killed, and the recorded boot ids are changed instead, in the rows by SQL and in the log
headers by the product's own encoder (the records do not depend on it).
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from durable_supervisor import Observer, RunState, Supervisor, SupervisorError
from durable_supervisor.model.errors import ErrorCode
from durable_supervisor.process.identity import read_stat
from durable_supervisor.process.signals import signal_ticks
from durable_supervisor.runlog.format import decode_header
from tests.crash.harness import assert_nothing_left, logs
from tests.crash.test_matrix import stopped
from tests.crash.world import World, facts, gapless, no_guess, read_all
from tests.support import eventually

BLOCK = 4096
OTHER_BOOT = "11111111-2222-3333-4444-555555555555"
# A few blocks of output in records of their own, and then the gate.
SPREAD = (
    'for i in 1 2 3 4 5 6; do head -c 1500 /dev/zero | tr "\\0" a; sleep 0.03; done; echo; '
    'n=0; while [ ! -e "$3" ] && [ $n -lt 1200 ]; do n=$((n+1)); sleep 0.05; done'
)


@dataclass
class Image:
    """What the disk may hold when the power is back."""

    name: str
    directory: Path

    @property
    def log(self) -> Path:
        [found] = logs(self.directory)
        return found


def reboot(state_dir: Path) -> None:
    """Every recorded boot id becomes another one."""
    with sqlite3.connect(state_dir / "journal.db") as conn:
        open_states = "('queued', 'starting', 'running', 'stopping', 'quarantined')"
        conn.execute(f"UPDATE runs SET boot_id = ? WHERE state IN {open_states}", (OTHER_BOOT,))
    conn.close()
    for log in state_dir.glob("runs/**/*.log"):
        data = log.read_bytes()
        header, length = decode_header(data)
        header.boot_id = OTHER_BOOT
        text = header.encode()
        assert len(text) == length
        log.write_bytes(text + data[length:])


def images(source: Path, folder: Path, synced: int) -> Iterator[Image]:
    """Copies of ``source`` whose log has lost a subset of its blocks behind its first ``synced`` bytes.

    A block counts as written only whole: what lies in it before ``synced`` was there already.
    """
    [log] = logs(source)
    size = log.stat().st_size
    begins = [synced, *range((synced // BLOCK + 1) * BLOCK, size, BLOCK)]
    blocks = [(begin, min((begin // BLOCK + 1) * BLOCK, size)) for begin in begins if begin < size]
    for count in range(len(blocks) + 1):
        for lost in itertools.combinations(blocks, count):
            image = _copy(source, folder / f"zeroed-{'-'.join(str(begin) for begin, _ in lost)}")
            with open(image.log, "r+b") as file:
                for begin, end in lost:
                    file.seek(begin)
                    file.write(bytes(end - begin))
            yield image
    for end in sorted({begin for begin, _ in blocks} | {size - 1, (synced + size) // 2}):
        if synced <= end < size:
            image = _copy(source, folder / f"cut-{end}")
            os.truncate(image.log, end)
            yield image


def _copy(source: Path, target: Path) -> Image:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.sock", "supervisor.*"))
    target.chmod(0o700)
    return Image(target.name, target)


def stop_at(world: World, step: str, folder: Path, *, ready: bool = False) -> Path:
    """The state directory as it is when a worker has come to ``step``, every process then killed."""
    with world.host(f"{step}=pause") as host:
        host.opened()
        host.tell("start", argv=world.argv, request_id=world.request_id)
        if ready:
            eventually(lambda: world.ledger.begun(world.request_id))
            eventually(lambda: logs(world.state_dir)[0].stat().st_size > 2 * BLOCK)
            world.ledger.open_gate()
        [(pid, ticks)] = eventually(lambda: stopped(world.state_dir))
        host.kill()
        before = folder / "before"
        shutil.copytree(world.state_dir, before, ignore=shutil.ignore_patterns("*.sock", "supervisor.*"))
        assert signal_ticks(pid, ticks, signal.SIGKILL)
        eventually(lambda: (stat := read_stat(pid)) is None or stat.start_ticks != ticks)
    world.ledger.open_gate()
    assert_nothing_left(world.state_dir)
    before.chmod(0o700)
    reboot(before)
    return before


async def judge(world: World, image: Image) -> tuple[RunState, str | None]:
    """Open the image, send the request again, open once more: a settled word that stays, and no execution."""
    there = World(image.directory, world.ledger, world.argv, world.options, world.request_id)
    executed = world.ledger.begun(world.request_id)
    async with Supervisor.open(image.directory) as sup:
        seen = await there.find(sup)
        assert seen is not None, image.name
        no_guess(there, seen, 5)
        again = await there.send(sup)
        assert (again.id, again.admission, again.state) == (seen.id, "existing", seen.state), image.name
        assert await read_all(sup, seen.id, 1000) == await read_all(sup, seen.id, 1)
    before = facts(image.directory)
    async with Supervisor.open(image.directory) as sup:
        await sup.reconcile()
    assert facts(image.directory) == before, image.name
    assert world.ledger.begun(world.request_id) == executed
    return seen.state, seen.reason


@pytest.mark.parametrize("step", ["worker.spawned", "worker.released", "worker.captured"])
async def test_nothing_was_synced(world: World, tmp_path: Path, step: str) -> None:
    """From the hand-over to the first background sync: the release may have been in the page cache."""
    world.argv = world.ledger.waiting(world.request_id)
    before = stop_at(world, step, tmp_path)
    seen = {}
    for image in images(before, tmp_path / "images", synced=0):
        seen[image.name] = await judge(world, image)
    assert {state for state, _ in seen.values()} == {RunState.UNKNOWN}, seen


@pytest.mark.parametrize("step", ["worker.spawned", "worker.released", "worker.captured"])
async def test_the_name_of_the_log_was_not_synced(world: World, tmp_path: Path, step: str) -> None:
    world.argv = world.ledger.waiting(world.request_id)
    before = stop_at(world, step, tmp_path)
    image = _copy(before, tmp_path / "unnamed")
    image.log.unlink()
    assert await judge(world, image) == (RunState.UNKNOWN, "log_missing")
    image = _copy(before, tmp_path / "empty")
    os.truncate(image.log, 0)
    assert (await judge(world, image))[0] is RunState.UNKNOWN


async def test_an_exit_without_its_receipt(world: World, tmp_path: Path) -> None:
    """The exit, where it reached the disk, is told; where it did not, nothing is guessed."""
    world.argv = world.ledger.program(world.request_id, SPREAD)
    before = stop_at(world, "worker.before_receipt", tmp_path, ready=True)
    seen = {}
    for image in images(before, tmp_path / "images", synced=0):
        seen[image.name] = await judge(world, image)
    assert seen["zeroed-"] == (RunState.FINISHED, "exit_logged")
    assert {state for state, _ in seen.values()} == {RunState.FINISHED, RunState.UNKNOWN}, seen


async def test_a_cursor_beyond_what_is_left_is_told(world: World, tmp_path: Path) -> None:
    """A reader had seen events that never reached the disk; others may stand under their numbers now."""
    world.argv = world.ledger.program(world.request_id, SPREAD)
    before = stop_at(world, "worker.before_receipt", tmp_path, ready=True)
    image = _copy(before, tmp_path / "image")
    run = image.log.name.partition(".")[0]
    async with Observer.open(world.state_dir) as reader:
        cursor = (await read_all(reader, run, 1000))[-1].seq
    os.truncate(image.log, BLOCK + 100)
    async with Supervisor.open(image.directory) as sup:
        seen = await sup.inspect(run)
        assert seen.state is RunState.UNKNOWN
        assert seen.head < cursor
        with pytest.raises(SupervisorError) as caught:
            await sup.events(run, after=cursor)
        assert caught.value.code is ErrorCode.CURSOR_AHEAD
        assert (caught.value.details["head"], caught.value.details["generation"]) == (seen.head, 2)
        page = await sup.events(run, after=seen.head)
        assert (page.events, page.end, page.generation) == ([], True, 2)
        assert "run.log_repaired" in [event.kind for event in await gapless(sup, run)]


async def test_a_durable_receipt_counts_whatever_the_journal_has_lost(world: World, tmp_path: Path) -> None:
    """The log was synced whole; the journal lost every commit after the intent."""
    world.argv = world.ledger.program(world.request_id, SPREAD)
    intent = tmp_path / "intent.db"
    with world.host() as host:
        host.opened()
        run = host.start(world.argv, world.request_id)
        with sqlite3.connect(world.journal) as source, sqlite3.connect(intent) as target:
            source.backup(target)
        source.close()
        target.close()
        world.ledger.open_gate()
        receipt = host.ask("wait", run=run)["receipt"]
        host.leave()
    image = _copy(world.state_dir, tmp_path / "image")
    for name in ("journal.db-wal", "journal.db-shm"):
        (image.directory / name).unlink(missing_ok=True)
    shutil.copy(intent, image.directory / "journal.db")
    reboot(image.directory)
    image.log.write_bytes(image.log.read_bytes() + bytes(BLOCK))  # preallocated, never written
    async with Observer.open(image.directory) as reader:
        assert (await reader.inspect(run)).receipt == receipt
    assert (await judge(world, image))[0] is RunState.FINISHED


async def test_output_before_a_receipt_is_on_the_disk_before_it(world: World, tmp_path: Path) -> None:
    """In an image that has the receipt, nothing before it is missing: the sync of the receipt covers all."""
    world.argv = world.ledger.program(world.request_id, SPREAD)
    world.ledger.open_gate()
    with world.host() as host:
        host.opened()
        run = host.start(world.argv, world.request_id)
        host.ask("wait", run=run)
        host.leave()
    size = logs(world.state_dir)[0].stat().st_size
    reboot(world.state_dir)
    for image in images(world.state_dir, tmp_path / "images", synced=size):
        async with Supervisor.open(image.directory) as sup:
            assert (await sup.inspect(run)).state is RunState.FINISHED
            events = await read_all(sup, run, 100)
            assert sum(len(event.data) for event in events) == 6 * 1500 + 1
            assert [event.seq for event in events] == list(range(1, len(events) + 1))
