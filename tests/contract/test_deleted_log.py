"""A state directory that goes away under its runs: for good, or to come back."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from durable_supervisor import Command, ErrorCode, Observer, RunState, SupervisorError
from durable_supervisor.model.identity import identity_of
from durable_supervisor.process.signals import signal_process
from tests.contract.hosts import HostScript
from tests.contract.runs import Marker, Runs, appear, gone
from tests.support import eventually, running

STARTS = """
sup = await Supervisor.open(STATE, max_concurrent_runs=1)
run = await sup.start(Command(argv=["sleep", sys.argv[3]]))
if QUEUED:
    run = await sup.start(Command(argv=["true"]), queue=True)
seen = await sup.inspect(run.id)
report(run=run.id, worker=seen.worker, program=seen.program)
await stay()
"""


@pytest.fixture
def running_host(state_dir: Path, tmp_path: Path, marker: Marker) -> Iterator[HostScript]:
    with HostScript(STARTS, state_dir, tmp_path, before="QUEUED = False", arguments=[str(marker)]) as script:
        yield script


@pytest.fixture
def queueing_host(state_dir: Path, tmp_path: Path, marker: Marker) -> Iterator[HostScript]:
    with HostScript(STARTS, state_dir, tmp_path, before="QUEUED = True", arguments=[str(marker)]) as script:
        yield script


def end(form: dict[str, object]) -> None:
    one = identity_of(form)
    assert one is not None
    signal_process(one, signal.SIGTERM)


def stays(pid: int) -> bool:
    """Through a time in which it would have tried again."""
    try:
        eventually(lambda: not running(pid), 1)
    except AssertionError:
        return True
    return False


def test_a_worker_whose_log_was_deleted_ends_with_its_program(
    running_host: HostScript, state_dir: Path, marker: Marker
) -> None:
    facts = running_host.facts()
    worker = facts["worker"]["pid"]
    shutil.rmtree(state_dir)
    running_host.kill()
    assert stays(worker)  # a deletion is no stop
    appear(marker, 1)
    end(facts["program"])
    eventually(lambda: not running(worker))
    gone(marker)


async def test_a_worker_whose_directory_was_moved_waits_for_it(
    running_host: HostScript, state_dir: Path, tmp_path: Path
) -> None:
    facts = running_host.facts()
    worker = facts["worker"]["pid"]
    running_host.kill()
    os.rename(state_dir, tmp_path / "elsewhere")
    end(facts["program"])
    assert stays(worker)
    os.rename(tmp_path / "elsewhere", state_dir)
    eventually(lambda: not running(worker))
    async with Observer.open(state_dir) as observer:
        view = await observer.inspect(facts["run"])
    assert view.outcome is not None
    assert view.outcome.signal == signal.SIGTERM


@pytest.mark.parametrize("supervisor_first", [False, True])
def test_a_queued_worker_that_nobody_can_find_ends(
    queueing_host: HostScript, state_dir: Path, marker: Marker, supervisor_first: bool
) -> None:
    worker = queueing_host.facts()["worker"]
    if supervisor_first:
        queueing_host.kill()
        assert stays(worker["pid"])  # as long as it has a log
        shutil.rmtree(state_dir)
        one = identity_of(worker)
        assert one is not None
        signal_process(one, signal.SIGUSR1)  # else it looks within seconds
    else:
        shutil.rmtree(state_dir)
        queueing_host.kill()
    eventually(lambda: not running(worker["pid"]))
    marker.kill()


async def test_who_waits_for_a_run_is_told_that_its_log_is_gone(runs: Runs, marker: Marker) -> None:
    """At once, also who waited before; its worker lives, and may do so for long."""
    run = await runs.sup.start(Command(argv=["sleep", str(marker)]))
    waiting = asyncio.create_task(runs.sup.wait(run.id))
    worker, program = (await runs.worker(run.id)), (await runs.sup.inspect(run.id)).program
    await asyncio.sleep(0)
    for path in runs.state_dir.glob(f"runs/*/{run.id}.a1.log"):
        path.unlink()
    assert (await runs.sup.reconcile()).changed == {run.id: RunState.QUARANTINED.value}
    for wait in (waiting, runs.sup.wait(run.id)):
        with pytest.raises(SupervisorError) as caught:
            await asyncio.wait_for(wait, 30)
        assert caught.value.code is ErrorCode.OUTCOME_UNKNOWN
    assert running(worker.pid)
    assert program is not None
    end(program)
