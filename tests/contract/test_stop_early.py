"""A stop that comes before the worker can listen on its socket."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from durable_supervisor import Command, RunState, Supervisor
from durable_supervisor.process.identity import read_stat
from tests.crash.test_matrix import stopped
from tests.support import PATIENCE, eventually_async


async def standing_still(sup: Supervisor) -> int:
    """The worker that has come to its failpoint; 0 as long as none has."""
    for view in (await sup.list()).runs:
        if view.program is not None and view.worker is not None:
            stat = read_stat(int(str(view.worker["pid"])))
            if stat is not None and stat.state == "T":
                return stat.pid
    return 0


async def test_a_stop_before_the_worker_has_its_socket_goes_by_the_channel(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker stands still right after the release; the stop waits for it on its channel."""
    monkeypatch.setenv("DURABLE_SUPERVISOR_FAILPOINTS", "worker.running=pause")
    async with Supervisor.open(state_dir, zygote=False) as sup:
        starting = asyncio.create_task(sup.start(Command(argv=["sleep", "3131"]), request_id="early"))
        worker = await eventually_async(lambda: standing_still(sup))
        run_id = (await sup.list()).runs[0].id
        stopping = asyncio.create_task(sup.stop(run_id, timeout=PATIENCE))
        await asyncio.sleep(0)
        os.kill(worker, signal.SIGCONT)
        receipt = await stopping
        assert receipt.result == "stopping"
        assert receipt.outcome is not None
        assert (receipt.outcome.kind.value, receipt.outcome.signal) == ("cancelled", signal.SIGTERM)
        await starting


async def test_a_term_to_the_worker_right_after_the_release_is_not_lost(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DURABLE_SUPERVISOR_FAILPOINTS", "worker.running=pause")
    async with Supervisor.open(state_dir, zygote=False) as sup:
        starting = asyncio.create_task(sup.start(Command(argv=["sleep", "3131"]), request_id="early"))
        worker = await eventually_async(lambda: standing_still(sup))
        os.kill(worker, signal.SIGTERM)
        os.kill(worker, signal.SIGCONT)
        final = await sup.wait((await starting).id, timeout=PATIENCE)
        assert final.receipt is not None
        assert final.receipt["stop"]["reason"] == "worker_terminated"  # type: ignore[index]


async def test_a_stop_while_a_large_stdin_is_handed_over_comes_behind_it(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both take the channel, of which the request is more than fits at once."""
    monkeypatch.setenv("DURABLE_SUPERVISOR_FAILPOINTS", "worker.waiting=pause")
    async with Supervisor.open(state_dir, zygote=False) as sup:
        starting = asyncio.create_task(sup.start(Command(argv=["wc", "-c"], stdin=bytes(3_000_000))))
        [(worker, _)] = await eventually_async(lambda: stopped(state_dir))
        [run] = (await sup.list()).runs
        await eventually_async(lambda: run.id in sup._dispatcher.links)
        stopping = asyncio.create_task(sup.stop(run.id, timeout=PATIENCE))
        await eventually_async(lambda: sup._dispatcher.links[run.id]._asked)
        os.kill(worker, signal.SIGCONT)
        assert (await starting).state is RunState.RUNNING
        receipt = await stopping
        assert receipt.outcome is not None
        assert receipt.result in ("stopping", "already_ended")
