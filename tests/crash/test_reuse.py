"""A host dies with workers that have had more than one run, at work and between two runs."""

from __future__ import annotations

import itertools
import os
import signal

import pytest

from durable_supervisor import RunState, Supervisor
from durable_supervisor.model.identity import ProcessIdentity
from durable_supervisor.process.identity import Liveness, probe, read_stat
from tests.crash.harness import Host, assert_nothing_left
from tests.crash.test_forks import living
from tests.crash.test_life import worker_of
from tests.crash.world import World
from tests.process.reuse import is_free
from tests.support import PATIENCE, eventually

_numbers = itertools.count()


def one_at_work(host: Host) -> tuple[str, ProcessIdentity, list[ProcessIdentity]] | None:
    """A run by a worker that has had one before, and those that are free; None where it came otherwise."""
    runs = [host.start(["sleep", "0.2"], request_id=f"short-{next(_numbers)}") for _ in range(3)]
    for run in runs:
        host.ask("wait", run=run)
    workers = [worker_of(host, run) for run in runs]
    run = host.start(["sh", "-c", "sleep 0.5; exit 8"], request_id=f"last-{next(_numbers)}")
    at_work = worker_of(host, run)
    free = [one for one in workers if one != at_work and is_free(one.pid)]
    return (run, at_work, free) if at_work in workers and free else None


async def test_a_killed_host_takes_free_workers_along_and_leaves_those_at_work(world: World) -> None:
    """A copy of it that lives on has nothing of their channels."""
    with world.host("", "zygote") as host:
        host.opened()
        run, at_work, free = eventually(lambda: one_at_work(host)) or ("", None, [])
        with living([host.ask("fork")]):
            host.kill()
            for one in free:
                eventually(lambda one=one: probe(one) is Liveness.GONE)  # type: ignore[misc]
    assert at_work is not None
    async with Supervisor.open(world.state_dir) as sup:
        seen = await sup.wait(run, timeout=PATIENCE)
        assert seen.outcome is not None
        assert seen.outcome.code == 8
    eventually(lambda: probe(at_work) is Liveness.GONE)
    assert_nothing_left(world.state_dir)


def a_free_one(host: Host) -> int:
    """A worker that is free; 0 where the run took too long."""
    run = host.start(["true"], request_id=f"short-{next(_numbers)}")
    host.ask("wait", run=run)
    worker = worker_of(host, run).pid
    return worker if is_free(worker) else 0


@pytest.mark.parametrize(("size", "attempts"), [(1, 1), (90_000, 2)], ids=["the whole spec", "half of it"])
async def test_a_host_dies_when_so_much_of_its_next_run_is_in_a_workers_socket(
    world: World, size: int, attempts: int
) -> None:
    """The lock is there as well, so the run is nobody else's; a worker that never has all of it leaves."""
    world.argv = world.ledger.program("r-1")
    world.options = {"env": {f"LARGE_{number}": "x" * size for number in range(7)}}
    with world.host("", "zygote") as host:
        host.opened()
        worker = eventually(lambda: a_free_one(host))
        host.ask("stop_free_workers")
        host.tell("start", argv=world.argv, request_id="r-1", **world.options)
        eventually(lambda: (stat := read_stat(worker)) is not None and stat.state == "T")
        host.ask("figures")  # which it answers when so much is sent
        host.kill()
    async with Supervisor.open(world.state_dir) as sup:
        found = await world.find(sup)
        assert found is not None
        assert found.state is RunState.STARTING
        assert (await world.send(sup)).attempt == 1
        os.kill(worker, signal.SIGCONT)
        seen = await sup.wait(found.id, timeout=PATIENCE)
        assert (seen.state is RunState.NOT_STARTED) == (attempts == 2)
        await world.send(sup)
        seen = await sup.wait(found.id, timeout=PATIENCE)
        assert (seen.state, seen.attempt) == (RunState.FINISHED, attempts)
    assert world.ledger.begun("r-1") == 1
    assert_nothing_left(world.state_dir)
