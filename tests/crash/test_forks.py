"""Hosts that fork, and hosts that start very many runs: nothing leaks into anybody."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from durable_supervisor import RunState, Supervisor
from durable_supervisor.process.identity import read_stat
from durable_supervisor.process.locks import LockState, keep_held, probe_lock, try_lock
from durable_supervisor.process.tree import children_of
from tests.crash.harness import assert_nothing_left, logs
from tests.crash.test_life import kill_and_see, worker_of
from tests.crash.world import World, check_guarantees, settle
from tests.support import eventually, eventually_async

# The long form, and a short one for every day.
MANY = 1000 if os.environ.get("CRASH_TESTS_FULL") else 150


@contextmanager
def living(pids: list[int]) -> Iterator[None]:
    """Helpers that must outlive the test's middle; ended afterwards by what they were at its beginning."""
    stats = [read_stat(pid) for pid in pids]
    ticks = {stat.pid: stat.start_ticks for stat in stats if stat is not None}
    try:
        yield
        for pid, start in ticks.items():
            stat = read_stat(pid)
            assert stat is not None
            assert stat.start_ticks == start
    finally:
        for pid, start in ticks.items():
            stat = read_stat(pid)
            if stat is not None and stat.start_ticks == start:
                os.kill(pid, signal.SIGKILL)


async def test_a_forked_helper_keeps_nothing_of_its_host(world: World) -> None:
    """Whether the host lives is judged by the host alone, though a copy of it lives on."""
    world.argv = world.ledger.waiting("r-1")
    with world.host() as host:
        host.opened()
        first = host.ask("fork")
        run = host.start(world.argv)
        worker = worker_of(host, run)
        with living([first, host.ask("fork")]):
            host.kill()
            async with Supervisor.open(world.state_dir, wait=2) as sup:  # the directory is free at once
                assert (await sup.inspect(run)).state is RunState.RUNNING
                kill_and_see(worker)
                world.ledger.open_gate()
                assert (await settle(sup, run))[-1].state is RunState.UNKNOWN
                [log] = logs(world.state_dir)
                # The owner takes it for a moment to write its verdict; a copy would keep it for ever.
                await eventually_async(lambda: probe_lock(str(log)) is LockState.FREE)
            await check_guarantees(world, ["unknown"])


@pytest.mark.parametrize("copied", [False, True])
def test_a_lock_is_let_go_of_without_a_break(tmp_path: Path, copied: bool) -> None:
    """To learn whether somebody else has a copy of it, which is who holds it then."""
    path = tmp_path / "log"
    path.touch()
    old, new = (os.open(path, os.O_RDWR) for _ in range(2))
    copy = os.dup(old) if copied else -1  # as a worker would have it
    assert try_lock(old)
    assert not try_lock(new)
    keep_held(old, new)
    assert probe_lock(str(path)) is LockState.HELD
    os.close(old)
    assert probe_lock(str(path)) is LockState.HELD
    assert try_lock(new) is not copied
    os.close(new)
    assert probe_lock(str(path)) is (LockState.HELD if copied else LockState.FREE)
    if copied:
        os.close(copy)
        assert probe_lock(str(path)) is LockState.FREE


@pytest.mark.parametrize("mode", ["exec", "zygote"])
async def test_helpers_forked_at_any_moment_hold_up_no_run(world: World, mode: str) -> None:
    """A copy that kept a log, or the channel of a worker to come, would keep the run open for ever."""
    worlds = []
    with world.host("", mode) as host:
        host.opened()
        forking = host.tell("fork_all_the_time", count=40)
        for number in range(12):
            request_id = f"r-{number}"
            argv = world.ledger.program(request_id)
            worlds.append(World(world.state_dir, world.ledger, argv, request_id=request_id))
            host.tell("start", argv=argv, request_id=request_id)
        with living(host.answer(forking, timeout=60)):
            host.kill()
            async with Supervisor.open(world.state_dir, wait=2) as sup:
                for one in worlds:
                    found = await one.find(sup)
                    if found is not None:
                        await settle(sup, found.id)
            for log in logs(world.state_dir):
                eventually(lambda log=log: probe_lock(str(log)) is not LockState.HELD)  # type: ignore[misc]
    await check_guarantees(worlds[0], ["finished", "not_started", "absent"])
    assert all(world.ledger.begun(one.request_id) <= 1 for one in worlds)


def zygotes_of(pid: int) -> list[int]:
    found = []
    for child in children_of(pid):
        with suppress(OSError):
            if b"zygote.py" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(child)
    return found


async def test_zygotes_are_killed_among_many_starts(world: World) -> None:
    """Whatever each of them was doing: every request is executed once, by whoever comes instead."""
    worlds = []
    with world.host("", "zygote") as host:
        host.opened()
        numbers = []
        for number in range(24):
            request_id = f"r-{number}"
            argv = world.ledger.program(request_id)
            worlds.append(World(world.state_dir, world.ledger, argv, request_id=request_id))
            numbers.append(host.tell("start", argv=argv, request_id=request_id))
            if number % 3 == 0:
                for zygote in zygotes_of(host.pid):
                    os.kill(zygote, signal.SIGKILL)
        ids = [host.answer(number, timeout=60)["run_id"] for number in numbers]
        for run, one in zip(ids, worlds, strict=True):
            seen = host.ask("inspect", run=run)
            if seen["state"] == "not_started":  # proven: then it is tried again
                again = host.ask("start", argv=one.argv, request_id=one.request_id)
                assert (again["run_id"], again["attempt"]) == (run, 2)
            final = host.ask("wait", run=run)
            assert (final["outcome"]["kind"], final["outcome"]["code"]) == ("exited", 5)
            assert world.ledger.begun(one.request_id) == 1
        host.leave()
    await check_guarantees(worlds[0], ["finished"])


@pytest.mark.timeout(400)
@pytest.mark.parametrize("mode", ["exec", "zygote"])
async def test_very_many_runs_leave_nothing_behind(world: World, mode: str) -> None:
    count = MANY if mode == "zygote" else MANY // 5
    with world.host("", mode) as host:
        host.opened()
        assert host.ask("start_many", count=3, argv=["sh", "-c", "exit 0"], prefix="warm")
        before = host.ask("figures")
        ends = host.answer(host.tell("start_many", count=count, argv=["sh", "-c", "exit 0"]), timeout=300)
        assert ends == {"finished:exited:0": count}

        def at_rest() -> bool:
            """Workers that wait for a further run, a descriptor each, are let go after some seconds."""
            after = host.ask("figures")
            assert (after["zombies"], after["descriptors"] <= before["descriptors"] + 2) == (0, True), after
            return True

        eventually(at_rest)
        host.leave()
    assert_nothing_left(world.state_dir)
    names = sorted(path.name for path in (world.state_dir / "runs").glob("*/*"))
    assert len(names) == count + 3  # one file a run: no socket, no directory, no lock file
    assert all(name.endswith(".a1.log") for name in names)
    assert sorted(_top(world.state_dir)) == ["journal.db", "key", "runs", "supervisor.lock"]


def _top(state_dir: Path) -> list[str]:
    return [path.name for path in state_dir.iterdir()]
