"""Between a last word's write and its sync nobody hears of it, however long that lasts and whoever asks."""

from __future__ import annotations

import asyncio
import signal

import pytest

from durable_supervisor import Observer, RunState, SupervisorError
from durable_supervisor.model.errors import ErrorCode
from durable_supervisor.model.events import TERMINAL_KINDS, Kind
from durable_supervisor.process.signals import signal_ticks
from tests.crash.harness import QUICK, Host
from tests.crash.test_matrix import stopped
from tests.crash.world import World
from tests.support import PATIENCE, eventually

CODE = 5


def brought_to(world: World, host: Host) -> tuple[str, tuple[int, int]]:
    """A run whose worker stands right before the sync of its receipt; the worker."""
    world.argv = world.ledger.program(world.request_id, QUICK, CODE)
    host.opened()
    run = host.start(world.argv)
    [worker] = eventually(lambda: stopped(world.state_dir))
    return run, worker


async def ends(reader: Observer, run: str) -> list[str]:
    page = await reader.events(run, limit=1000)
    assert page.end is any(event.kind in TERMINAL_KINDS for event in page.events)
    return [event.kind for event in page.events if event.kind in TERMINAL_KINDS]


async def test_it_is_not_yet_for_owner_and_readers(world: World) -> None:
    with world.host("log.last_word=pause") as host:
        run, worker = brought_to(world, host)
        assert host.ask("inspect", run=run)["state"] == "running"
        kinds = {event["kind"] for event in host.ask("events", run=run)["events"]}
        assert (Kind.PROGRAM_EXITED in kinds, Kind.RUN_FINISHED in kinds) == (True, False)
        async with Observer.open(world.state_dir) as reader:
            seen = await reader.inspect(run)
            page = await reader.events(run, limit=1000)
            assert (seen.state, seen.outcome, seen.receipt) == (RunState.RUNNING, None, None)
            assert (page.head, page.next_after, page.end) == (seen.head, seen.head, False)
            assert [one.state for one in (await reader.list()).runs] == [RunState.RUNNING]
            assert await ends(reader, run) == []
            with pytest.raises(SupervisorError) as caught:
                await reader.wait(run, timeout=0.1)
            assert caught.value.code is ErrorCode.WAIT_TIMEOUT
            with pytest.raises(SupervisorError) as caught:
                await reader.audit(run, ["a secret of many"])  # its files would tell
            assert caught.value.code is ErrorCode.BUSY
            following = asyncio.ensure_future(anext(reader.follow(run, after=seen.head)))
            await asyncio.sleep(0)
            assert signal_ticks(*worker, signal.SIGCONT)
            assert (await asyncio.wait_for(following, PATIENCE)).kind == Kind.RUN_FINISHED
            assert (await reader.inspect(run)).outcome is not None
        assert host.ask("wait", run=run)["outcome"]["code"] == CODE


async def test_it_counts_once_its_writer_is_gone(world: World) -> None:
    with world.host("log.last_word=pause") as host:
        run, worker = brought_to(world, host)
        host.kill()
        assert signal_ticks(*worker, signal.SIGKILL)
        async with Observer.open(world.state_dir) as reader:
            seen = await reader.wait(run, timeout=PATIENCE)
            assert seen.state is RunState.FINISHED
            assert seen.outcome is not None
            assert seen.outcome.code == CODE
            assert await ends(reader, run) == [Kind.RUN_FINISHED]
            assert (await reader.audit(run, ["a secret of many"])).run_id == run
