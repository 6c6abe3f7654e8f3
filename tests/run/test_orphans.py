"""Nothing is left behind: not by a killed worker, not by a killed host."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from durable_supervisor import (
    AsyncClient,
    Command,
    ErrorCode,
    Limits,
    Observer,
    RunState,
    Supervisor,
    run,
    stream,
)
from tests.contract.hosts import HostScript, refused
from tests.contract.runs import Marker, appear, gone
from tests.run.conftest import Caller
from tests.service.daemons import Service
from tests.support import PATIENCE, eventually, eventually_async


async def worker_of(caller: Caller, request_id: str) -> int:
    async def found() -> int:
        runs = (await caller.face.sup.list(limit=1000)).runs
        mine = [one for one in runs if one.request_id == request_id]
        worker = (await caller.face.sup.inspect(mine[0].id)).worker if mine else None
        return int(str(worker["pid"])) if worker else 0

    return int(await eventually_async(found, timeout=PATIENCE))


async def test_a_killed_worker_is_unknown_and_leaves_nothing(caller: Caller, marker: Marker) -> None:
    request_id = caller.face.id("lost")
    script = f"setsid sleep {marker} & echo dying >&2; sleep {marker}; exit 3"
    task = asyncio.create_task(caller.sh(script, request_id=request_id))
    await eventually_async(lambda: marker.alive())
    worker = await worker_of(caller, request_id)
    await said(caller, request_id)
    os.kill(worker, signal.SIGKILL)
    async with refused(ErrorCode.OUTCOME_UNKNOWN) as caught:
        async with asyncio.timeout(PATIENCE):
            await task
    error = caught()
    seen = await caller.face.sup.inspect(str(error.details["run_id"]))
    assert seen.request_id == request_id
    assert seen.state is RunState.UNKNOWN
    assert error.details["evidence"]
    assert (error.executable, error.stderr_tail) == ("sh", "dying\n")
    assert not error.retryable
    eventually(lambda: not marker.alive())


async def test_a_worker_that_is_killed_after_its_programs_end(sup: Supervisor, marker: Marker) -> None:
    """The exit is known, what the program left behind is not ended by anybody else."""
    # What it leaves does not heed TERM, so that its worker is there for as long as the grace.
    command = Command(argv=["sh", "-c", f"trap '' TERM; setsid sleep {marker} & exit 3"])
    async with stream(command, supervisor=sup, limits=Limits(timeout=PATIENCE, grace=PATIENCE)) as events:
        async for event in events:
            if event.kind == "program.exited":
                worker = (await sup.inspect(str(events.run_id))).worker
                os.kill(int(str((worker or {})["pid"])), signal.SIGKILL)
                break
        result = await events.wait()
    assert (result.exit_code, result.output_incomplete) == (3, True)
    eventually(lambda: not marker.alive())


async def said(caller: Caller, request_id: str) -> None:
    async def seen() -> bool:
        runs = (await caller.face.sup.list(limit=1000)).runs
        (mine,) = [one for one in runs if one.request_id == request_id]
        return any(event.data for event in (await caller.face.sup.events(mine.id)).events)

    await eventually_async(seen)


async def test_a_detached_run_of_a_killed_worker_is_the_operators(sup: Supervisor, marker: Marker) -> None:
    command = Command(argv=["sleep", str(marker)])
    async with stream(command, supervisor=sup, lifetime="detached") as events:
        async for event in events:
            if event.kind == "program.released":
                break
        worker = (await sup.inspect(str(events.run_id))).worker
        assert worker is not None
        os.kill(int(str(worker["pid"])), signal.SIGKILL)
        async with refused(ErrorCode.OUTCOME_UNKNOWN) as caught:
            await events.wait()
    assert caught().details["state"] == "quarantined"
    assert marker.alive()


async def test_a_killed_host_takes_its_calls_along(state_dir: Path, tmp_path: Path, marker: Marker) -> None:
    code = f"""
        argv = ["sh", "-c", "setsid sleep {marker} & sleep {marker}"]
        task = asyncio.create_task(run(Command(argv=argv), limits=Limits(grace=5)))
        report(pid=os.getpid())
        await task
    """
    env = {"DURABLE_SUPERVISOR_STATE_DIR": str(state_dir)}
    before = "from durable_supervisor import run"
    with HostScript(code, state_dir, tmp_path, before=before, env=env) as script:
        script.facts()
        appear(marker, 3)  # one is the host itself, whose code has it
        script.process.kill()
        script.process.wait()
    async with Observer.open(state_dir) as seen:
        (one,) = (await seen.list()).runs
        ended = await seen.wait(one.id, timeout=PATIENCE)
    assert ended.receipt is not None
    assert ended.receipt["stop"]["reason"] == "host_gone"  # type: ignore[index]
    gone(marker)


async def test_a_stopped_worker_does_not_hold_up_the_call(
    sup: Supervisor, marker: Marker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its deadline has passed, and it neither ends the program nor dies: that is unknown."""
    monkeypatch.setattr("durable_supervisor.api.held._ANSWER_SECONDS", 0.5)
    command = Command(argv=["sleep", str(marker)])
    call = run(command, supervisor=sup, limits=Limits(timeout=4, grace=0.1), request_id="silent")
    task = asyncio.create_task(call)
    await eventually_async(lambda: marker.alive())
    (one,) = (await sup.list()).runs
    worker = (await sup.inspect(one.id)).worker
    assert worker is not None
    os.kill(int(str(worker["pid"])), signal.SIGSTOP)
    try:
        async with refused(ErrorCode.OUTCOME_UNKNOWN) as caught:
            async with asyncio.timeout(PATIENCE):
                await task
        assert caught().details["evidence"]["reason"] == "worker_silent"  # type: ignore[index]
    finally:
        os.kill(int(str(worker["pid"])), signal.SIGCONT)
    assert (await sup.wait(one.id, timeout=PATIENCE)).outcome is not None
    gone(marker)


async def test_a_supervisor_that_is_closed_under_a_call(state_dir: Path, marker: Marker) -> None:
    """Its worker is told to end it, so that nothing goes on for as long as this process lives."""
    async with Supervisor.open(state_dir) as sup:
        task = asyncio.create_task(run(Command(argv=["sleep", str(marker)]), supervisor=sup))
        await eventually_async(lambda: marker.alive())
    async with refused(ErrorCode.SUPERVISOR_CLOSED):
        await task
    gone(marker)


async def test_a_service_that_is_gone_under_a_call(state_dir: Path, marker: Marker) -> None:
    """Also where it has not answered the start yet, so that nobody was told the run's id."""
    with Service(state_dir) as service:
        client = await AsyncClient.connect(state_dir, reconnect=0)
        task = asyncio.create_task(run(Command(argv=["sleep", str(marker)]), supervisor=client))
        await eventually_async(lambda: marker.alive())
        service.process.kill()
        async with refused(ErrorCode.SERVICE_UNAVAILABLE, ErrorCode.SUBMISSION_INDETERMINATE):
            await task
        gone(marker)
        await client.close()
