"""A start by an owner without an event loop: the same run, the same refusals, the same worker."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from durable_supervisor import Command, ErrorCode, Run, RunState, Supervisor, SupervisorError
from durable_supervisor.model.command import Limits
from durable_supervisor.model.request import Queueing, StartRequest
from durable_supervisor.process.places import POINTER_NAME
from durable_supervisor.supervisor.start import passing
from durable_supervisor.supervisor.state.state_dir import StateDir
from durable_supervisor.supervisor.workers.prestarted import PrestartedWorker
from tests.process.handover import LISTENER, check_goes_on
from tests.support import PATIENCE, eventually, running

WHOLE = contextlib.nullcontext()


def asked(command: Command, limits: Limits | None = None) -> StartRequest:
    return StartRequest(command=command, request_id="r-1", limits=limits)


def start(
    state_dir: Path, request: StartRequest, prestarted: PrestartedWorker | None = None, *, queue: bool = False
) -> Run | None:
    return passing.start(
        StateDir(str(state_dir)),
        request,
        Queueing(queue),
        prestarted,
        whole=WHOLE,
        meanwhile=lambda: None,
        tell=lambda: None,
    )


def started(state_dir: Path, request: StartRequest, prestarted: PrestartedWorker | None = None) -> Run:
    run = start(state_dir, request, prestarted)
    assert run is not None
    return run


def test_it_outlives_its_starter(state_dir: Path) -> None:
    run = started(state_dir, asked(LISTENER))
    assert (run.state, run.admission, run.attempt) == (RunState.RUNNING, "new", 1)
    asyncio.run(check_goes_on(state_dir, run.id))


def test_the_worker_that_loads_already_gets_it(state_dir: Path) -> None:
    worker = PrestartedWorker.spawn()
    assert worker is not None
    run = started(state_dir, asked(LISTENER), worker)
    worker.close()

    async def whose() -> object:
        async with Supervisor.open(state_dir) as sup:
            return (await sup.inspect(run.id)).worker

    found = asyncio.run(whose())
    assert isinstance(found, dict)
    assert found["pid"] == worker.pid
    asyncio.run(check_goes_on(state_dir, run.id))


def test_one_that_was_killed_is_not_waited_for(state_dir: Path, tmp_path: Path) -> None:
    worker = PrestartedWorker.spawn()
    assert worker is not None
    os.kill(worker.pid, signal.SIGKILL)
    eventually(lambda: not running(worker.pid))
    ledger = tmp_path / "ledger"
    started(state_dir, asked(Command(argv=["sh", "-c", f"echo ran >> '{ledger}'"])), worker)
    eventually(lambda: ledger.exists() and ledger.read_text() == "ran\n")


def test_the_same_request_is_the_same_run_and_another_is_refused(state_dir: Path) -> None:
    first = started(state_dir, asked(LISTENER))
    again = started(state_dir, asked(LISTENER))
    assert (again.id, again.admission, again.state) == (first.id, "existing", RunState.RUNNING)
    with pytest.raises(SupervisorError) as caught:
        start(state_dir, asked(Command(argv=["true"])))
    assert caught.value.code is ErrorCode.IDEMPOTENCY_CONFLICT
    asyncio.run(check_goes_on(state_dir, first.id))


def test_a_program_that_cannot_be_executed_is_told_and_may_be_tried_again(
    state_dir: Path, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    request = asked(Command(argv=[str(program)]))
    run = started(state_dir, request)
    assert (run.state, run.reason) == (RunState.NOT_STARTED, "ENOENT")
    program.symlink_to("/bin/true")
    again = started(state_dir, request)
    assert (again.id, again.attempt, again.admission) == (run.id, 2, "retry")


def test_a_long_stdin_reaches_the_program(state_dir: Path, tmp_path: Path) -> None:
    copy, text = tmp_path / "copy", os.urandom(3_000_000)
    started(
        state_dir,
        asked(Command(argv=["sh", "-c", f"cat > '{copy}.new'; mv '{copy}.new' '{copy}'"], stdin=text)),
    )
    eventually(copy.exists)
    assert copy.read_bytes() == text


def test_a_limit_for_the_kernel_is_planned_for(state_dir: Path, tmp_path: Path) -> None:
    told = tmp_path / "told"
    command = Command(argv=["sh", "-c", f"ulimit -n > '{told}.new'; mv '{told}.new' '{told}'"])
    started(state_dir, asked(command, Limits(max_open_files=17)))
    eventually(told.exists)
    assert told.read_text() == "17\n"


async def test_nothing_is_started_where_somebody_owns_the_directory(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passing, "OWNER_SECONDS", 0.2)
    async with Supervisor.open(state_dir) as sup:
        with pytest.raises(SupervisorError) as caught:
            start(state_dir, asked(Command(argv=["true"])))
        assert (caught.value.code, caught.value.details) == (ErrorCode.STATE_DIR_IN_USE, {"pid": os.getpid()})
        (state_dir / POINTER_NAME).write_text("{}")
        assert start(state_dir, asked(Command(argv=["true"]))) is None, "it is to be asked"
        assert not (await sup.list()).runs


async def test_nothing_is_started_where_a_run_waits_for_a_slot(state_dir: Path) -> None:
    async with Supervisor.open(state_dir, max_concurrent_runs=1) as sup:
        held = await sup.start(LISTENER)
        waits = await sup.start(Command(argv=["true"]), queue=True)
        assert waits.state is RunState.QUEUED
    assert start(state_dir, asked(Command(argv=["true"])), queue=True) is None
    async with Supervisor.open(state_dir, max_concurrent_runs=1) as sup:
        assert len((await sup.list()).runs) == 2
        await sup.write_stdin(held.id, b"go\n")
        assert (await sup.wait(waits.id, timeout=PATIENCE)).state is RunState.FINISHED


def test_nothing_is_started_beside_imported_runs(state_dir: Path) -> None:
    (state_dir / "imported").mkdir(mode=0o700)
    assert start(state_dir, asked(Command(argv=["true"]))) is None
    assert not (state_dir / "journal.db").exists()


async def test_where_runs_were_collected_it_starts_once_their_files_are_gone(state_dir: Path) -> None:
    async with Supervisor.open(state_dir) as sup:
        run = await sup.start(Command(argv=["true"]))
        await sup.wait(run.id, timeout=PATIENCE)
        await sup.gc(keep=0, apply=True)
    assert start(state_dir, asked(Command(argv=["true"]))) is not None


def test_a_coroutine_that_waits_is_not_left_half_done() -> None:
    ended = []

    async def waits() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            ended.append(True)

    with pytest.raises(RuntimeError, match="event loop"):
        passing.run_through(waits())
    assert ended == [True]


def test_it_needs_no_asyncio() -> None:
    code = "import sys, durable_supervisor.supervisor.start.passing; sys.exit('asyncio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
