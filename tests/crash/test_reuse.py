"""A host dies with workers that have had more than one run, at work and between two runs."""

from __future__ import annotations

import itertools

from durable_supervisor import Supervisor
from durable_supervisor.model.identity import ProcessIdentity
from durable_supervisor.process.identity import Liveness, probe
from tests.crash.harness import Host, assert_nothing_left
from tests.crash.test_life import worker_of
from tests.crash.world import World
from tests.process.test_reuse import is_free
from tests.support import eventually

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
    with world.host("", "zygote") as host:
        host.opened()
        run, at_work, free = eventually(lambda: one_at_work(host)) or ("", None, [])
        host.kill()
    assert at_work is not None
    for one in free:
        eventually(lambda one=one: probe(one) is Liveness.GONE)  # type: ignore[misc]
    async with Supervisor.open(world.state_dir) as sup:
        seen = await sup.wait(run, timeout=30)
        assert seen.outcome is not None
        assert seen.outcome.code == 8
    eventually(lambda: probe(at_work) is Liveness.GONE)
    assert_nothing_left(world.state_dir)
