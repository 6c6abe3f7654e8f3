"""The host of a scoped run is killed at every step: its program never goes on without it."""

from __future__ import annotations

import signal

import pytest

from durable_supervisor import RunState
from durable_supervisor.model.view import RunView
from durable_supervisor.process.signals import signal_ticks
from tests.crash.harness import HostDied
from tests.crash.test_matrix import ABSENT, FINISHED, HELD, HOST, NEVER, Scenario, stopped
from tests.crash.test_queue import ask, check, fill
from tests.crash.world import World, check_guarantees
from tests.support import eventually

# It goes on until the gate opens, which here nobody does before its end, or TERM ends it.
SCOPED = Scenario(HELD.body, options={"lifetime": "scope", "limits": {"grace": 30}})
EITHER = NEVER + FINISHED

# Where the worker (or the child that becomes the program) stands when the host dies.
WORKER = {
    "worker.waiting": NEVER,
    "worker.spec_received": NEVER,
    "worker.log_open": NEVER,
    "worker.dispatched": NEVER,
    "worker.forked": NEVER,
    "program.paused": FINISHED,  # its worker has looked, and has let it go
    "worker.spawned": FINISHED,
    "worker.released": FINISHED,
    "program.released": FINISHED,
    "worker.gate_open": FINISHED,
    "worker.running": FINISHED,
    "worker.socket_bound": FINISHED,
    "worker.captured": FINISHED,
}
FORKED = ("worker.waiting", "program.paused")  # the others are the same, however a worker came to be
STARTS = [name for name in HOST if name.startswith("start.")]


def ended_with_its_host(seen: RunView | None) -> None:
    assert seen is not None
    if seen.state is RunState.NOT_STARTED:
        assert (seen.reason, seen.retryable) == ("host_gone", True)
    else:
        assert seen.outcome is not None
        assert (seen.outcome.kind, seen.outcome.signal) == ("cancelled", signal.SIGTERM)
        assert seen.receipt is not None
        assert seen.receipt["stop"]["reason"] == "host_gone"  # type: ignore[index]


@pytest.mark.parametrize(("name", "expected"), WORKER.items())
async def test_it_dies_as_the_worker_gets_so_far(world: World, name: str, expected: tuple[str, ...]) -> None:
    SCOPED.request(world)
    with world.host(f"{name}=pause", "zygote" if name in FORKED else "exec") as host:
        host.opened()
        SCOPED.play(world, host)
        [(pid, ticks)] = eventually(lambda: stopped(world.state_dir), message=f"{name} was not reached")
    assert signal_ticks(pid, ticks, signal.SIGCONT)
    ended_with_its_host(await check_guarantees(world, expected))


@pytest.mark.parametrize("name", STARTS)
async def test_it_dies_as_it_starts_the_run(world: World, name: str) -> None:
    SCOPED.request(world)
    with world.host(f"{name}=kill", "zygote" if "zygote" in name else "") as host:
        try:
            host.opened()
            SCOPED.play(world, host)
        except HostDied:
            pass
        host.died()
    expected = HOST[name][1]
    found = await check_guarantees(world, EITHER if expected == FINISHED else expected)
    if expected == FINISHED:
        ended_with_its_host(found)
    assert (found is None) == (expected == ABSENT)


@pytest.mark.parametrize("name", ["", "waiting.queued", "waiting.dispatched"])
async def test_it_dies_while_the_run_is_queued(world: World, name: str) -> None:
    world.options = {"lifetime": "scope"}
    with world.host(f"{name}=pause" if name else "", "one") as host:
        fill(world, host)
        number = ask(world, host)
        if name == "waiting.dispatched":
            host.answer(number)
            world.ledger.open_gate()
        if name:
            [(pid, ticks)] = eventually(lambda: stopped(world.state_dir), message=f"{name} was not reached")
        else:
            host.answer(number)
    if name:
        assert signal_ticks(pid, ticks, signal.SIGCONT)
    ended_with_its_host(await check(world, NEVER))
