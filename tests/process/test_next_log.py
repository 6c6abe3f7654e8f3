"""The next run's log, made ahead of a lone start: nobody's until that start, and gone with its supervisor."""

from __future__ import annotations

import asyncio
import itertools
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from durable_supervisor import Command, RunState, Supervisor
from durable_supervisor.process.locks import LockState, probe_lock
from durable_supervisor.runlog.paths import SHARD_RUNS, RunPaths
from durable_supervisor.supervisor.dispatch.next_log import NextLog, NextShard
from tests.contract.hosts import HostScript, log_of
from tests.support import PATIENCE, eventually_async, has_next_log
from tests.unit.runlog_helpers import header_of

TRUE = Command(argv=["true"])
SLEEP = Command(argv=["sleep", "600"])


async def start_and_wait(sup: Supervisor) -> Path:
    """The run's log, once the next run's is there too."""
    run = await sup.start(TRUE)
    assert (await sup.wait(run.id, timeout=PATIENCE)).state is RunState.FINISHED
    await has_next_log(sup)
    return log_of(Path(sup.state_dir), run.id)


def inode_of_next(sup: Supervisor) -> int:
    [fd] = sup._dispatcher._next_log._ready
    return os.fstat(fd).st_ino


async def test_a_start_that_comes_alone_takes_it(state_dir: Path) -> None:
    async with Supervisor.open(state_dir) as sup:
        assert not sup._dispatcher._next_log.is_there, "who starts nothing has none"
        await start_and_wait(sup)
        made = inode_of_next(sup)
        log = await start_and_wait(sup)
        assert log.stat().st_ino == made
        await eventually_async(lambda: probe_lock(str(log)) is LockState.FREE)
        assert inode_of_next(sup) != made
    assert not sup._dispatcher._next_log.is_there, "it is gone with its supervisor"


async def test_its_lock_is_held_without_a_break(state_dir: Path) -> None:
    """As any log's, from before it has a name."""
    async with Supervisor.open(state_dir) as sup:
        await start_and_wait(sup)
        made = inode_of_next(sup)
        run = await sup.start(SLEEP)
        log = log_of(state_dir, run.id)
        assert log.stat().st_ino == made
        assert probe_lock(str(log)) is LockState.HELD
        await sup.stop(run.id)
        seen = await sup.wait(run.id, timeout=PATIENCE)
        assert (seen.state, seen.log_health) == (RunState.FINISHED, None)


async def test_many_at_once_have_one_each(state_dir: Path) -> None:
    async with Supervisor.open(state_dir) as sup:
        await start_and_wait(sup)
        runs = await asyncio.gather(*(sup.start(TRUE) for _ in range(8)))
        seen = await asyncio.gather(*(sup.wait(run.id, timeout=PATIENCE) for run in runs))
        assert {view.state for view in seen} == {RunState.FINISHED}
        assert len({path.stat().st_ino for path in (state_dir / "runs").glob("*/*.log")}) == 9


async def test_a_start_that_begins_nothing_makes_none(state_dir: Path) -> None:
    async with Supervisor.open(state_dir) as sup:
        known = await sup.start(TRUE, request_id="one")
        await sup.wait(known.id, timeout=PATIENCE)
    async with Supervisor.open(state_dir) as sup:
        assert (await sup.start(TRUE, request_id="one")).id == known.id
        for _ in range(3):  # turns of the loop, after which it has begun
            await asyncio.sleep(0)
        await sup._journal.write(lambda conn: None)  # behind it, in the same thread
        assert not sup._dispatcher._next_log.is_there


async def test_a_killed_supervisor_leaves_none(state_dir: Path, tmp_path: Path) -> None:
    code = """
        async with Supervisor.open(STATE) as sup:
            run = await sup.start(Command(argv=["true"]))
            await sup.wait(run.id)
            while not sup._dispatcher._next_log.is_there:
                await asyncio.sleep(0.01)
            report()
            await stay()
    """
    with HostScript(code, state_dir, tmp_path) as host:
        host.facts()
        host.kill()
    [log] = [path for path in (state_dir / "runs").rglob("*") if path.is_file()]
    assert log.name.endswith(".a1.log")


async def test_where_none_can_be_made_a_start_makes_its_own(state_dir: Path) -> None:
    async with Supervisor.open(state_dir) as sup:
        next_log = sup._dispatcher._next_log
        next_log._runs_dir = "/proc/self"  # no file there is without a name
        for _ in range(2):
            run = await sup.start(TRUE)
            assert (await sup.wait(run.id, timeout=PATIENCE)).state is RunState.FINISHED
            await sup._journal.write(lambda conn: None)  # behind what was begun, in the same thread
            assert not next_log.is_there


def test_it_is_kept_where_no_other_file_could_be_had(tmp_path: Path) -> None:
    """Its descriptor would be one that can be had: a start that tries again would go on until the next."""
    log, paths = NextLog(str(tmp_path)), RunPaths(str(tmp_path), "0000", "run0000000000001")
    log.make(1)
    [made] = log._ready
    with no_descriptors():
        for _ in range(2):
            with pytest.raises(OSError, match="Too many open files"):
                log.create(paths, header_of(paths))
    assert os.listdir(paths.dir) == []
    assert list(log._ready) == [made]
    log.close()


@contextmanager
def no_descriptors() -> Iterator[None]:
    free = os.dup(0)
    os.close(free)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_next_shard_is_made_only_when_it_is_near(tmp_path: Path) -> None:
    """Else one start in 256 would make a directory, and wait until its name is on the disk."""
    shards = NextShard(str(tmp_path))
    for newest, there in [
        (SHARD_RUNS // 2, ["0000"]),
        (SHARD_RUNS - 1, ["0000", "0001"]),
        (SHARD_RUNS, ["0000", "0001"]),
    ]:
        shards.make(newest)
        assert sorted(os.listdir(tmp_path)) == there
    assert (tmp_path / "0001").stat().st_mode & 0o777 == 0o700


def test_a_shard_that_cannot_be_synced_is_not_left(tmp_path: Path) -> None:
    """Who finds one takes it that it was."""
    with no_descriptors(), pytest.raises(OSError, match="Too many open files"):
        NextShard(str(tmp_path)).make(1)
    assert os.listdir(tmp_path) == []


async def test_the_first_run_of_a_shard_finds_it(state_dir: Path) -> None:
    async with Supervisor.open(state_dir) as sup:
        sup._identity.serials = itertools.count(SHARD_RUNS - 1)
        await start_and_wait(sup)
        await eventually_async((state_dir / "runs" / "0001").exists)
        assert (await start_and_wait(sup)).parent.name == "0001"


def test_one_that_is_closed_while_it_is_made_is_let_go_of_by_who_makes_it(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    log = NextLog(str(tmp_path))
    make = log._make

    def closed_meanwhile() -> int:
        made = make()
        log.close()  # as by another thread, which is here too early to find it
        return made

    log._make = closed_meanwhile  # type: ignore[method-assign]
    log.make(1)
    assert not log.is_there
    assert len(os.listdir("/proc/self/fd")) == before
