"""Running short of descriptors for a while: nothing is lost, and nobody is left alone."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from durable_supervisor import Command, ErrorCode, RunState, Supervisor, SupervisorError
from tests.contract.runs import Marker, Runs, gone
from tests.support import PATIENCE, eventually, eventually_async, has_next_log


async def test_a_worker_short_of_descriptors_goes_on_when_they_come_back(runs: Runs, marker: Marker) -> None:
    """Its looks into /proc fail meanwhile; the end of its program is seen all the same."""
    run = await runs.sh(f"read go; sleep {marker} & exit 3", stdin="open")
    worker = (await runs.worker(run.id)).pid
    used = len(list(Path(f"/proc/{worker}/fd").iterdir()))
    before = resource.prlimit(worker, resource.RLIMIT_NOFILE)
    resource.prlimit(worker, resource.RLIMIT_NOFILE, (1, before[1]))
    await runs.sup.write_stdin(run.id, b"\n")

    async def exited() -> bool:
        return any(event.kind == "program.exited" for event in (await runs.sup.events(run.id)).events)

    await eventually_async(exited)
    assert Path(f"/proc/{worker}").exists(), used
    resource.prlimit(worker, resource.RLIMIT_NOFILE, before)
    final = await runs.sup.wait(run.id, timeout=PATIENCE)
    assert final.outcome is not None
    assert (final.outcome.kind.value, final.outcome.code) == ("exited", 3)
    gone(marker)


@contextmanager
def no_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("before", [0, 1])
async def test_a_host_short_of_descriptors_gets_a_typed_error(state_dir: Path, before: int) -> None:
    """Nothing is written, whether it has started runs before or not."""
    async with Supervisor.open(state_dir) as sup:
        for _ in range(before):
            await sup.wait((await sup.start(Command(argv=["true"]))).id, timeout=PATIENCE)
            await has_next_log(sup)
        with no_descriptors(), pytest.raises(SupervisorError) as caught:
            await sup.start(Command(argv=["true"]), request_id="later")
        assert caught.value.code is ErrorCode.BUSY
        assert caught.value.retryable
        again = await sup.start(Command(argv=["true"]), request_id="later")
        assert again.attempt == 1
        assert (await sup.wait(again.id, timeout=PATIENCE)).outcome is not None


async def test_an_opening_may_run_short_of_descriptors_at_any_point(state_dir: Path) -> None:
    """It says so, and leaves nothing behind that would keep the next one out."""
    async with Supervisor.open(state_dir) as sup:
        await sup.wait((await sup.start(Command(argv=["true"]))).id, timeout=PATIENCE)
    eventually(forgotten_ones_are_gone)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used, refusals = descriptors(), list[SupervisorError]()
    for limit in range(3, max(used) + 100):
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        try:
            await (await Supervisor.open(state_dir, wait=0)).close()
            break
        except SupervisorError as error:
            refusals.append(error)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert descriptors() == used, limit
    assert {(error.code, error.retryable) for error in refusals} == {(ErrorCode.BUSY, True)}
    async with Supervisor.open(state_dir, wait=0):
        pass


def forgotten_ones_are_gone() -> bool:
    """Supervisors that a test before did not close: of each the journal's thread closes what it has."""
    gc.collect()
    return not any(thread.name == "durable-supervisor-journal" for thread in threading.enumerate())


def descriptors() -> set[int]:
    listing = os.open("/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY)
    try:
        return {int(name) for name in os.listdir(listing)} - {listing}
    finally:
        os.close(listing)


async def test_starts_may_run_short_of_descriptors_at_any_point(state_dir: Path) -> None:
    """Neither is the directory called unusable, nor a request id spent."""

    async def start(number: int) -> SupervisorError | None:
        try:
            await sup.start(Command(argv=["true"]), request_id=f"short-{number}")
        except SupervisorError as error:
            return error
        return None

    async with Supervisor.open(state_dir) as sup:
        await sup.wait((await sup.start(Command(argv=["true"]))).id, timeout=PATIENCE)
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        used = len(list(Path("/proc/self/fd").iterdir()))
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 1, before[1]))
        try:
            refusals = await asyncio.gather(*map(start, range(24)))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        assert {error.code for error in refusals if error is not None} <= {ErrorCode.BUSY}
        assert all(error.retryable for error in refusals if error is not None)
        for number in range(24):
            again = await sup.start(Command(argv=["true"]), request_id=f"short-{number}")
            assert (await sup.wait(again.id, timeout=PATIENCE)).outcome is not None


async def test_no_run_is_judged_by_a_look_that_got_no_descriptor(runs: Runs) -> None:
    run = await runs.sh("read go; exit 3", stdin="open")
    assert (await runs.sup.inspect(run.id)).state is RunState.RUNNING  # the journal is open to be read, too
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(SupervisorError) as caught:
            await runs.sup.inspect(run.id)
        with pytest.raises(SupervisorError) as waited:
            await runs.sup.wait(run.id, timeout=1)
        await runs.sup.reconcile()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (caught.value.code, waited.value.code) == (ErrorCode.BUSY, ErrorCode.BUSY)
    assert caught.value.retryable
    assert (await runs.sup.inspect(run.id)).state is RunState.RUNNING
    assert RunState.QUARANTINED not in [entry.state for entry in await runs.sup.feed()]
    await runs.sup.write_stdin(run.id, b"\n")
    final = await runs.sup.wait(run.id, timeout=PATIENCE)
    assert final.outcome is not None
    assert final.outcome.code == 3
