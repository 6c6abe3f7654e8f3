"""A worker is killed while its run has groups of its own: the guarantees hold, and no group stays."""

from __future__ import annotations

import signal

import pytest

from durable_supervisor.process.signals import signal_ticks
from durable_supervisor.testing import leftovers
from tests.crash.test_matrix import FINISHED, HELD, NEVER, UNKNOWN, Scenario, stopped
from tests.crash.world import World, check_guarantees
from tests.policy.resources import needs_group
from tests.support import eventually

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
    await check_guarantees(world, expected)
    assert leftovers.groups_of(list(leftovers.attempts(world.state_dir))) == {}
