"""Kill -9 and power loss in the life of a queued run: executed at most once, and never guessed about."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from durable_supervisor import Observer, RunState, Supervisor
from durable_supervisor.model.view import RunView
from durable_supervisor.process.identity import read_stat
from durable_supervisor.process.signals import signal_ticks
from tests.crash.harness import Host, assert_nothing_left, end_all
from tests.crash.queued import QUEUE_HOST, QUEUE_START, WAITING
from tests.crash.test_matrix import stopped
from tests.crash.test_power import BLOCK, reboot
from tests.crash.world import World, check_guarantees, settle
from tests.support import eventually

HOLDER = "holder"


def fill(world: World, host: Host) -> str:
    """The only slot is taken, until the gate opens."""
    host.opened()
    world.argv = world.ledger.program(world.request_id, "echo out")
    return host.start(world.ledger.waiting(HOLDER), HOLDER)


def ask(world: World, host: Host) -> int:
    return host.tell(
        "start", argv=world.argv, request_id=world.request_id, queue=True, priority=3, **world.options
    )


def queued(world: World, host: Host) -> str:
    fill(world, host)
    answer = host.answer(ask(world, host))
    assert answer["state"] == "queued"
    return str(answer["run_id"])


async def check(world: World, expected: tuple[str, ...]) -> RunView | None:
    world.ledger.open_gate()
    async with Observer.open(world.state_dir) as observer:
        [holder] = [run for run in (await observer.list()).runs if run.request_id == HOLDER]
        await observer.wait(holder.id, timeout=60)
    found = await check_guarantees(world, expected)
    assert world.ledger.begun(HOLDER) == 1
    return found


@pytest.mark.parametrize(("name", "expected"), QUEUE_HOST.items())
async def test_a_host_is_killed_as_it_lets_a_run_go(
    world: World, name: str, expected: tuple[str, ...]
) -> None:
    with world.host(f"{name}=kill", "one") as host:
        queued(world, host)
        world.ledger.open_gate()
        host.died()
    await check(world, expected)


@pytest.mark.parametrize("name", ["queue.picked", "queue.marking", "queue.marked"])
async def test_the_next_owner_is_killed_at_it_too(world: World, name: str) -> None:
    """What one leaves half-way is taken up by the next, and by whoever comes after it."""
    with world.host(f"{name}=kill", "one") as host:
        queued(world, host)
        world.ledger.open_gate()
        host.died()
    with world.host(f"{name}=kill", "one") as host:
        host.died()
    await check(world, ("finished",))


@pytest.mark.parametrize(("name", "expected"), QUEUE_START.items())
async def test_a_host_is_killed_as_it_queues_a_run(
    world: World, name: str, expected: tuple[str, ...]
) -> None:
    with world.host(f"{name}=kill@2", "one") as host:  # the first is the holder's
        fill(world, host)
        ask(world, host)
        host.died()
    await check(world, expected)


@pytest.mark.parametrize("host_lives", [True, False], ids=["host lives", "host dies"])
@pytest.mark.parametrize(("name", "expected"), WAITING.items())
async def test_a_waiting_worker_is_killed(
    world: World, name: str, expected: tuple[str, ...], host_lives: bool
) -> None:
    with world.host(f"{name}=pause", "one") as host:
        if name == "waiting.queued":
            fill(world, host)
            ask(world, host)
        else:
            run = queued(world, host)
            if name == "waiting.refused":
                host.tell("stop", run=run)
            else:
                world.ledger.open_gate()
        [(pid, ticks)] = eventually(lambda: stopped(world.state_dir), message=f"{name} was not reached")
        if not host_lives:
            host.kill()
        assert signal_ticks(pid, ticks, signal.SIGKILL)
        eventually(lambda: (stat := read_stat(pid)) is None or stat.dead or stat.start_ticks != ticks)
        if host_lives:
            host.ask("reconcile")
            world.ledger.open_gate()
            host.leave()
    await check(world, expected)


def power_loss(world: World, folder: Path) -> Path:
    """The directory as it is now, when the power is back; every process here is ended."""
    image = folder / "image"
    shutil.copytree(world.state_dir, image, ignore=shutil.ignore_patterns("*.sock", "supervisor.*"))
    image.chmod(0o700)
    world.ledger.open_gate()
    end_all(world.state_dir)
    assert_nothing_left(world.state_dir)
    reboot(image)
    return image


def lose(image: Path, run: str, kept: int) -> None:
    """Of the run's log only the first ``kept`` bytes had reached the disk."""
    [log] = image.glob(f"runs/*/{run}.a1.log")
    os.truncate(log, min(kept, log.stat().st_size))


async def test_the_power_goes_while_it_waits(world: World, tmp_path: Path) -> None:
    """It never ran, and that is known: nobody had been told to let it go."""
    with world.host(mode="one") as host:
        run = queued(world, host)
        host.kill()
    image = power_loss(world, tmp_path)
    async with Supervisor.open(image) as sup:
        seen = await sup.inspect(run)
        assert (seen.state, seen.reason, seen.retryable) == (RunState.NOT_STARTED, "worker_lost", True)
        again = await World(image, world.ledger, world.argv).send(sup)
        assert (again.id, again.attempt) == (run, 2)
        assert (await settle(sup, run))[-1].state is RunState.FINISHED
    assert world.ledger.begun(world.request_id) == 1


@pytest.mark.parametrize("step", ["queue.marked", "waiting.dispatched"])
@pytest.mark.parametrize("kept", [BLOCK, 1 << 20], ids=["tail lost", "all kept"])
async def test_the_power_goes_once_it_may_have_been_told(
    world: World, tmp_path: Path, step: str, kept: int
) -> None:
    """From the commit on nobody can tell from the disk whether it began: unknown, and never again."""
    with world.host(f"{step}=pause", "one") as host:
        run = queued(world, host)
        world.ledger.open_gate()
        if step == "queue.marked":
            eventually(lambda: (stat := read_stat(host.pid)) is not None and stat.state == "T")
        else:
            eventually(lambda: stopped(world.state_dir))
        image = power_loss(world, tmp_path)
    lose(image, run, kept)
    begun = world.ledger.begun(world.request_id)
    async with Supervisor.open(image) as sup:
        assert (await sup.inspect(run)).state is RunState.UNKNOWN
        again = await World(image, world.ledger, world.argv).send(sup)
        assert (again.id, again.state, again.admission) == (run, RunState.UNKNOWN, "existing")
    assert world.ledger.begun(world.request_id) == begun
