"""An operator's word on a run whose worker was lost."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from durable_supervisor import Command, ErrorCode, RunState, Supervisor, SupervisorError
from durable_supervisor.process.identity import read_stat
from durable_supervisor.process.tree import marked
from tests.conftest import eventually_async
from tests.support import PATIENCE

DAEMON = "setsid sleep 3131 </dev/null >/dev/null 2>&1 & exec sleep 3131"


async def lose_worker(sup: Supervisor, command: Command) -> str:
    """A quarantined run: its program lives, its worker does not."""
    run = await sup.start(command)
    worker = (await sup.inspect(run.id)).worker or {}
    os.kill(int(str(worker["pid"])), signal.SIGKILL)

    async def quarantined() -> bool:
        return (await sup.inspect(run.id)).state is RunState.QUARANTINED

    await eventually_async(quarantined)
    return run.id


async def test_kill_ends_the_program_and_the_daemons_it_left(state_dir: Path) -> None:
    async with Supervisor.open(state_dir) as sup:
        run_id = await lose_worker(sup, Command(argv=["sh", "-c", DAEMON]))
        await eventually_async(lambda: len(marked("DURABLE_SUPERVISOR_RUN_ID", run_id)) >= 2)
        left = marked("DURABLE_SUPERVISOR_RUN_ID", run_id)
        view = await sup.resolve(run_id, "kill", note="its worker was killed", by_uid=4711)
        assert view.state is RunState.UNKNOWN
        assert view.outcome is None
        assert not view.retryable
        assert view.resolution is not None
        assert view.resolution["action"] == "kill"
        assert view.resolution["note"] == "its worker was killed"
        assert view.resolution["by_uid"] == 4711

        def all_gone() -> bool:
            stats = [read_stat(one.pid) for one in left]
            return all(stat is None or stat.dead for stat in stats)

        await eventually_async(all_gone)
        page = await sup.events(run_id)
        assert page.end
        assert "run.resolved" in [event.kind for event in page.events]


async def test_a_daemon_that_outlived_everything_is_told_and_ended(state_dir: Path) -> None:
    """Nobody saw the end: a stop that finds it over does not say that nothing is left."""
    async with Supervisor.open(state_dir) as sup:
        run_id = await lose_worker(sup, Command(argv=["sh", "-c", DAEMON]))
        await eventually_async(lambda: len(marked("DURABLE_SUPERVISOR_RUN_ID", run_id)) >= 2)
        program = (await sup.inspect(run_id)).program or {}
        os.kill(int(str(program["pid"])), signal.SIGKILL)

        async def unknown() -> bool:
            return (await sup.inspect(run_id)).state is RunState.UNKNOWN

        await eventually_async(unknown)
        await sup.reconcile()
        assert marked("DURABLE_SUPERVISOR_RUN_ID", run_id)
        receipt = await sup.stop(run_id)
        assert (receipt.result, receipt.confirmed) == ("already_ended", False)
        view = await sup.resolve(run_id, "kill")
        assert (view.state, view.reason) == (RunState.UNKNOWN, "worker_lost")
        assert view.head == (await sup.events(run_id)).head
        await eventually_async(lambda: not marked("DURABLE_SUPERVISOR_RUN_ID", run_id))


async def test_wait_returns_once_the_program_has_ended_by_itself(state_dir: Path, tmp_path: Path) -> None:
    done = tmp_path / "done"
    async with Supervisor.open(state_dir) as sup:
        script = f"trap '' PIPE; while [ ! -e '{done}.go' ]; do sleep 0.02; done; touch '{done}'"
        run_id = await lose_worker(sup, Command(argv=["sh", "-c", script]))
        Path(f"{done}.go").touch()
        view = await sup.resolve(run_id, "wait")
        assert done.exists()
        assert view.state is RunState.UNKNOWN


async def test_accept_settles_it_as_it_is_and_leaves_the_program_alone(state_dir: Path) -> None:
    async with Supervisor.open(state_dir) as sup:
        run_id = await lose_worker(sup, Command(argv=["sleep", "3131"]))
        view = await sup.resolve(run_id, "accept")
        assert view.state is RunState.UNKNOWN
        assert view.reason == "resolved"
        program = view.program or {}
        assert read_stat(int(str(program["pid"]))) is not None
        assert (await sup.reconcile()).changed == {}
        os.kill(int(str(program["pid"])), signal.SIGKILL)


async def test_a_run_that_is_well_cannot_be_resolved(state_dir: Path) -> None:
    async with Supervisor.open(state_dir) as sup:
        run = await sup.start(Command(argv=["true"]))
        await sup.wait(run.id, timeout=PATIENCE)
        with pytest.raises(SupervisorError) as caught:
            await sup.resolve(run.id, "accept")
        assert caught.value.code is ErrorCode.NOT_RESOLVABLE
