"""A worker that was started before its run was known: the same behaviour, whatever happens to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from durable_supervisor import Command, RunState, RunView, Supervisor
from durable_supervisor.supervisor.workers.prestarted import PrestartedWorker
from tests.conftest import eventually, eventually_async, running
from tests.process.handover import LISTENER, check_goes_on
from tests.support import PATIENCE


def prestarted() -> PrestartedWorker:
    worker = PrestartedWorker.spawn()
    assert worker is not None
    return worker


def worker_pid(view: RunView) -> object:
    assert view.worker is not None
    return view.worker["pid"]


async def test_it_gets_the_first_run_alone_and_outlives_its_supervisor(state_dir: Path) -> None:
    worker = prestarted()
    async with Supervisor.open(state_dir, prestarted=worker) as sup:
        run = await sup.start(LISTENER)
        other = await sup.start(Command(argv=["sleep", "3131"]))
        assert worker_pid(await sup.inspect(run.id)) == worker.pid
        assert worker_pid(await sup.inspect(other.id)) != worker.pid
        assert os.getsid(worker.pid) == worker.pid, "it leads a session of its own"
        await sup.stop(other.id, grace=5)
    await check_goes_on(state_dir, run.id)


async def test_without_a_run_it_leaves_with_its_supervisor(state_dir: Path) -> None:
    worker = prestarted()
    async with Supervisor.open(state_dir, prestarted=worker):
        pass
    await eventually_async(lambda: not running(worker.pid))


async def test_a_killed_one_is_not_waited_for(state_dir: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    worker = prestarted()
    async with Supervisor.open(state_dir, prestarted=worker) as sup:
        os.kill(worker.pid, signal.SIGKILL)
        await eventually_async(lambda: not running(worker.pid))
        run = await sup.start(Command(argv=["sh", "-c", f"echo ran >> '{ledger}'"]))
        assert (await sup.wait(run.id, timeout=PATIENCE)).state is RunState.FINISHED
    assert ledger.read_text() == "ran\n"


async def test_one_killed_with_its_run_in_hand_leaves_a_run_that_never_was(state_dir: Path) -> None:
    worker = prestarted()
    async with Supervisor.open(state_dir, prestarted=worker) as sup:
        os.kill(worker.pid, signal.SIGSTOP)
        start = sup._tasks.spawn(sup.start(Command(argv=["true"]), request_id="once"))
        await eventually_async(lambda: sup._dispatcher.links)
        os.kill(worker.pid, signal.SIGKILL)
        run = await start
        view = await sup.inspect(run.id)
        assert (view.state, view.retryable) == (RunState.NOT_STARTED, True)
        again = await sup.start(Command(argv=["true"]), request_id="once")
        assert again.id == run.id
        assert (await sup.wait(run.id, timeout=PATIENCE)).state is RunState.FINISHED


def test_it_leaves_with_a_host_that_was_killed() -> None:
    code = (
        "import asyncio, os, signal\n"
        "from durable_supervisor.supervisor.workers.prestarted import PrestartedWorker\n"
        "async def main():\n"
        "    print(PrestartedWorker.spawn().pid, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    eventually(lambda: not running(int(done.stdout)))


def test_where_there_is_nothing_to_rehearse_with_it_is_left_out() -> None:
    """A worker that waits may have its run in its socket by then: to fail would lose it."""
    script = (
        "import resource\n"
        "from durable_supervisor.worker.rehearsal import rehearse\n"
        "_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))\n"
        "rehearse()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
