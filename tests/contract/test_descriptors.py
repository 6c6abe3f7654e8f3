"""A host with few descriptors left: a start works or is refused, and holds on to nothing."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from durable_supervisor import Command, RunState, Supervisor, SupervisorError
from durable_supervisor.supervisor.loop.logs import logger
from tests.contract.lines import Yard, finished, hold, queue
from tests.contract.runs import Runs
from tests.support import PATIENCE, eventually_async, is_next_log


@contextmanager
def at_most(count: int) -> Iterator[None]:
    """Lower our own limit, which a worker inherits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def only(free: int) -> Iterator[None]:
    """All but ``free`` descriptors are taken."""
    taken = []
    with at_most(256):
        try:
            with suppress(OSError):
                while True:
                    taken.append(os.open(os.devnull, os.O_RDONLY))
            for _ in range(free):
                os.close(taken.pop())
            yield
        finally:
            for fd in taken:
                os.close(fd)


def logs_open(state_dir: Path) -> list[str]:
    targets = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if not is_next_log(name):
                targets.append(os.readlink(f"/proc/self/fd/{name}"))
    return [target for target in targets if target.startswith(f"{state_dir}/runs/")]


@pytest.mark.parametrize("zygote", [True, False])
async def test_a_low_limit_is_enough(state_dir: Path, zygote: bool) -> None:
    with at_most(64):
        async with Supervisor.open(state_dir, zygote=zygote) as sup:
            run = await sup.start(Command(argv=["true"]))
            assert (await sup.wait(run.id, timeout=PATIENCE)).state is RunState.FINISHED


@pytest.mark.parametrize("free", range(12))
async def test_a_start_that_gets_no_descriptor_keeps_no_lock(runs: Runs, free: int) -> None:
    await runs.wait(await runs.start(["true"]))  # what is loaded and opened once is there
    command = Command(argv=["true"])
    with only(free), suppress(SupervisorError, OSError):
        await runs.sup.start(command, request_id="scarce")
    await eventually_async(lambda: logs_open(runs.state_dir) == [])  # a thread may just be reading one
    run = await runs.sup.start(command, request_id="scarce")
    assert (await runs.wait(run)).state is RunState.FINISHED


@pytest.mark.parametrize("adopted", [False, True])
@pytest.mark.parametrize("free", [1, 3])
async def test_a_queue_goes_on_once_there_are_descriptors_again(
    state_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, free: int, adopted: bool
) -> None:
    """What happens while they are short is looked at again, though nobody asks for it."""
    logger()  # is loaded, so that it can tell
    yard = Yard(tmp_path)
    sup = await Supervisor.open(state_dir, max_concurrent_runs=1)
    held, waiting = await hold(sup, yard, "first"), await queue(sup, yard, "next")
    if adopted:
        await sup.close()
        sup = await Supervisor.open(state_dir, max_concurrent_runs=1)
    with only(free):
        yard.release("first")
        await eventually_async(lambda: caplog.records or sup.capacity().queued == 0)
    await finished(sup, held, waiting)
    await sup.close()
    assert yard.signed_in() == ["first", "next"]
