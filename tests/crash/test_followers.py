"""A worker is killed when its program's exit is known: its followers see the owner's word, too."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from durable_supervisor import Event, Observer
from durable_supervisor.model.events import Kind
from durable_supervisor.process.identity import read_stat
from durable_supervisor.reconcile import judging
from tests.contract.hosts import kill_run
from tests.contract.runs import open_runs
from tests.crash.harness import Host
from tests.crash.world import World
from tests.support import PATIENCE, eventually_async

EXITED = "worker.exited=kill"


def stands_still(host: Host) -> bool:
    stat = read_stat(host.pid)
    return stat is not None and stat.state == "T"


async def followed(seen: Observer, run_id: str, after: int = 0) -> list[Event]:
    async with asyncio.timeout(PATIENCE):
        return [event async for event in seen.follow(run_id, after=after)]


@pytest.mark.parametrize("point", ["reconcile.before_word", "reconcile.word"])
async def test_the_word_of_an_owner_that_takes_its_time(world: World, point: str) -> None:
    """It stands still for longer than nobody would be waited for; log and journal may be apart meanwhile."""
    with Host(world.state_dir, f"{EXITED},{point}=pause") as host:
        host.opened()
        async with Observer.open(world.state_dir) as seen:
            run_id = host.start(world.ledger.waiting("r-1"))
            follower = asyncio.create_task(followed(seen, run_id))
            world.ledger.open_gate()
            await eventually_async(lambda: stands_still(host))
            late = asyncio.create_task(followed(seen, run_id, after=2))
            await asyncio.wait({follower, late}, timeout=2.5)
            os.kill(host.pid, signal.SIGCONT)
            events, rest = await follower, await late
            whole = (await seen.events(run_id, limit=1000)).events
    assert events == whole
    assert rest == whole[2:]
    assert events[-1].kind == "run.finished"
    assert events[-1].detail["incomplete"] is True


async def test_nobody_is_waited_for_long(world: World) -> None:
    """The owner dies over its word: what there is of the run is shown, and that is all."""
    with Host(world.state_dir, f"{EXITED},reconcile.before_word=kill") as host:
        host.opened()
        run_id = host.start(world.ledger.waiting("r-1"))
        async with Observer.open(world.state_dir) as seen:
            follower = asyncio.create_task(followed(seen, run_id))
            world.ledger.open_gate()
            host.died()
            clock = asyncio.get_running_loop().time
            began = clock()
            events = await follower
            assert events[-1].kind == "program.exited"
            assert (await seen.wait(run_id)).outcome is not None
            assert await followed(seen, run_id, after=events[-1].seq) == []
            assert clock() - began < 10
    with Host(world.state_dir) as host:
        host.opened()
        async with Observer.open(world.state_dir) as seen:
            (last,) = await followed(seen, run_id, after=events[-1].seq)
        assert last.kind == "run.finished"


async def test_an_end_that_the_journal_alone_tells(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where many are lost at once.  A follower has come to the end; what an operator says is later."""
    monkeypatch.setattr(judging, "WORDS_AT_ONCE", 0)
    async with open_runs(state_dir) as runs:
        run = await runs.sh("echo on; exec sleep 60")
        await runs.printed(run, b"on\n")
        follower = asyncio.create_task(followed(runs.sup, run.id))
        await kill_run(await runs.sup.inspect(run.id))
        events = await follower
        await runs.sup.resolve(run.id, "kill")
        later = await followed(runs.sup, run.id, after=events[-1].seq)
    assert events[-1].kind == Kind.OUTPUT
    assert [event.kind for event in later] == [Kind.RUN_RESOLVED]
