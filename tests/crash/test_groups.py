"""A worker is killed while its run has groups of its own: the guarantees hold, and no group stays."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from durable_supervisor import Command, Supervisor
from durable_supervisor.process.signals import signal_ticks
from durable_supervisor.sandbox.resources import cgroups, run_cgroups
from durable_supervisor.testing import leftovers
from tests.cli.helpers import Cli
from tests.crash.test_matrix import FINISHED, HELD, NEVER, UNKNOWN, Scenario, stopped
from tests.crash.world import World, check_guarantees
from tests.policy.resources import needs_group
from tests.support import PATIENCE, eventually, eventually_async

LIMITS = {"grace": 0.2, "max_memory_bytes": 256 << 20, "max_processes": 100}
EXIT = Scenario(options={"limits": LIMITS})
RUNS_ON = Scenario(HELD.body, options={"limits": LIMITS})
DIES = {
    "worker.forked": (EXIT, NEVER),
    "worker.released": (EXIT, UNKNOWN),
    "worker.captured": (RUNS_ON, UNKNOWN),
    "worker.before_receipt": (EXIT, FINISHED),
}


@pytest.mark.parametrize("name", DIES)
async def test_a_worker_with_groups_is_killed(world: World, name: str) -> None:
    needs_group("tree")
    scenario, expected = DIES[name]
    kill_worker(world, name, scenario)
    await check_guarantees(world, expected)
    assert leftovers.groups_of(list(leftovers.attempts(world.state_dir))) == {}


def kill_worker(world: World, name: str, scenario: Scenario) -> None:
    """At this step, and its host with it."""
    scenario.request(world)
    with world.host(f"{name}=pause", "exec") as host:
        host.opened()
        scenario.play(world, host)
        [(pid, ticks)] = eventually(lambda: stopped(world.state_dir), message=f"{name} was not reached")
        groups = leftovers.groups_of(list(leftovers.attempts(world.state_dir)))
        assert bool(groups) == (name != "worker.before_receipt"), "made before the fork, removed at the end"
        host.kill()
        assert signal_ticks(pid, ticks, signal.SIGKILL)
    world.ledger.open_gate()


def test_a_command_that_starts_a_run_removes_them_too(world: World) -> None:
    needs_group("tree")
    kill_worker(world, "worker.released", EXIT)
    Cli(world.state_dir).start("--", "true")
    assert leftovers.groups_of(list(leftovers.attempts(world.state_dir))) == {}


async def test_who_judged_a_run_is_killed_before_its_groups_are_removed(state_dir: Path) -> None:
    """The journal knows of its end, so nothing is new about it to the next owner."""
    needs_group("tree")
    async with Supervisor.open(state_dir) as sup:
        run = await sup.start(Command(argv=["true"]))
        await sup.wait(run.id, timeout=PATIENCE)
    [attempt] = leftovers.attempts(state_dir)
    group = f"{run_cgroups.PREFIX}{attempt.directory_id}.{run.id}.1"
    path = os.path.join(cgroups.places()[0], group)
    os.mkdir(path)
    try:
        async with Supervisor.open(state_dir):
            await eventually_async(lambda: not os.path.exists(path))
    finally:
        run_cgroups.remove_group(path)
