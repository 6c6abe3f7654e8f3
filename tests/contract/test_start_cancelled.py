"""A start whose caller is cancelled, or whose host is interrupted, is whole or was never begun."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest

from durable_supervisor import Command, RunState, Supervisor
from tests.contract.hosts import HostScript, host
from tests.contract.runs import Marker, Runs, appear, check_gapless
from tests.support import PATIENCE, eventually_async


async def check_whole(runs: Runs, marker: Marker, request_id: str, command: Command) -> None:
    """One run, one program; its caller is told of it when it asks again."""
    await eventually_async(lambda: not runs.sup._tasks)
    (view,) = [view for view in (await runs.sup.list()).runs if view.request_id == request_id]
    assert view.state is RunState.RUNNING
    check_gapless((await runs.sup.events(view.id)).events)
    assert (await runs.sup.start(command, request_id=request_id)).id == view.id
    appear(marker, 1)
    assert len(marker.alive()) == 1


def in_its_first_turn(sup: Supervisor) -> bool:
    return True


def at_its_worker(sup: Supervisor) -> bool:
    return bool(sup._dispatcher.links)


@pytest.mark.parametrize("moment", [in_its_first_turn, at_its_worker])
@pytest.mark.parametrize("stdin", [None, b"x" * 4_000_000], ids=["small", "large"])
async def test_cancelled_at_a_moment(
    runs: Runs, marker: Marker, moment: Callable[[Supervisor], bool], stdin: bytes | None
) -> None:
    """While the journal commits; while the worker gets its spec, or before its first word."""
    command = Command(argv=["sleep", str(marker)], stdin=stdin)
    caller = asyncio.create_task(runs.sup.start(command, request_id="r-1"))
    async with asyncio.timeout(PATIENCE):
        await asyncio.sleep(0)
        while not moment(runs.sup):  # noqa: ASYNC110  (in the very turn)
            await asyncio.sleep(0)
    assert caller.cancel()
    await asyncio.wait([caller])
    assert caller.cancelled()
    await check_whole(runs, marker, "r-1", command)


async def test_cancelled_by_a_timeout_of_its_callers(runs: Runs, marker: Marker) -> None:
    command = Command(argv=["sleep", str(marker)])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await runs.sup.start(command, request_id="r-1")
    await check_whole(runs, marker, "r-1", command)


@pytest.mark.parametrize("nested", [1, 2])
async def test_cancelled_by_a_scope_of_anyio(runs: Runs, marker: Marker, nested: int) -> None:
    """Which lets out what it does not know for its own."""
    command = Command(argv=["sleep", str(marker)])
    with ExitStack() as scopes:
        found = [scopes.enter_context(anyio.CancelScope()) for _ in range(nested)]
        for scope in found:
            scope.cancel()
        await runs.sup.start(command, request_id="r-1")
    assert found[0].cancelled_caught
    await asyncio.sleep(0)
    await check_whole(runs, marker, "r-1", command)


async def test_cancelled_by_a_group(runs: Runs, marker: Marker) -> None:
    command = Command(argv=["sleep", str(marker)])

    async def refused() -> None:
        await runs.sup.start(Command(argv=["true"]), owner="\0")

    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(runs.sup.start(command, request_id="r-1"))
            group.create_task(refused())

    with pytest.raises(ExceptionGroup):
        await both()
    await check_whole(runs, marker, "r-1", command)


async def test_who_starts_the_same_meanwhile_gets_the_same(runs: Runs, marker: Marker) -> None:
    command = Command(argv=["sleep", str(marker)])
    callers = [asyncio.create_task(runs.sup.start(command, request_id="r-1")) for _ in range(5)]
    await asyncio.sleep(0)
    for one in callers[::2]:
        one.cancel()
    found = await asyncio.gather(*callers[1::2])
    assert len({run.id for run in found}) == 1
    await check_whole(runs, marker, "r-1", command)


# A host with Ctrl-C in the middle of a start.  The argument: turns of the loop until then.
INTERRUPTED = """
def interrupt(turns):
    if turns:
        loop.call_soon(interrupt, turns - 1)
    else:
        os.kill(os.getpid(), signal.SIGINT)
loop = asyncio.get_running_loop()
loop.slow_callback_duration = 3600  # on a machine that is busy some are slow, and told of with their repr
interrupt(int(sys.argv[3]))
await sup.start(Command(argv=["sleep", "60"]), request_id="r-1")
"""


@pytest.mark.parametrize("turns", [0, 1, 2, 40])
@pytest.mark.parametrize("closes", [True, False])
def test_an_interrupted_host_prints_nothing_of_it(
    tmp_path: Path, state_dir: Path, turns: int, closes: bool
) -> None:
    opened = "async with Supervisor.open(STATE) as sup:" if closes else "sup = await Supervisor.open(STATE)"
    inner = INTERRUPTED.strip().replace("\n", "\n    " if closes else "\n")
    code = f"{opened}\n    {inner}" if closes else f"{opened}\n{inner}"
    environment = {"PYTHONASYNCIODEBUG": "1"}
    with HostScript(code, state_dir, tmp_path, arguments=[str(turns)], env=environment) as script:
        script.process.wait(PATIENCE)
        text = script.errors()
    *_, last = text.strip().splitlines()
    assert last == "KeyboardInterrupt", text
    for word in ("never", "destroyed", "ignored", "closed", "Warning"):
        assert word not in text, text

    async def again() -> None:
        async with Supervisor.open(state_dir, wait=PATIENCE) as sup:
            await sup.reconcile()
            seen = (await sup.list()).runs
            assert len(seen) <= 1
            if closes and turns:  # its start was finished before it let go
                assert [view.state for view in seen] == [RunState.RUNNING]
            await sup.shutdown(timeout=PATIENCE)

    asyncio.run(again())


def test_nothing_is_printed_where_asyncio_is_watched(tmp_path: Path, state_dir: Path) -> None:
    code = """
    asyncio.get_running_loop().slow_callback_duration = 3600
    async with Supervisor.open(STATE, max_concurrent_runs=2) as sup:
        async def one(number):
            try:
                await sup.wait((await sup.start(Command(argv=["true"]), request_id=f"r-{number % 7}")).id)
            except SupervisorError as error:
                return error.code.value
        codes = await asyncio.gather(*map(one, range(20)))
        for number in range(5):
            await one(number)
    report(codes=[code for code in codes if code not in (None, "CAPACITY_EXHAUSTED")])
    """
    environment = {"PYTHONASYNCIODEBUG": "1", "PYTHONWARNINGS": "always"}
    with HostScript(code, state_dir, tmp_path, env=environment) as script:
        assert script.finish(PATIENCE)["codes"] == []
        assert script.errors() == ""


def test_what_its_host_has_set_holds_in_it(tmp_path: Path, state_dir: Path) -> None:
    """As far as the callback that a host gives with its call, which is asked in the middle of a start."""
    code = """
    from contextvars import ContextVar
    asker, seen = ContextVar("asker", default=None), []
    async with Supervisor.open(STATE) as sup:
        from durable_supervisor.supervisor.admission.host import read_host
        async def one(name):
            asker.set(name)
            command = Command(argv=["true"])
            given = read_host(command)._replace(hung_up=lambda: bool(seen.append([name, asker.get()])))
            await sup.start(command, host=given)
        await asyncio.gather(*(one(f"caller {number}") for number in range(4)))
    report(seen=seen)
    """
    seen = host(code, state_dir, tmp_path)["seen"]
    assert {name for name, _ in seen} == {f"caller {number}" for number in range(4)}
    assert all(name == asker for name, asker in seen)


def test_a_host_may_run_its_loop_until_a_run_is_over_within_the_very_turn_of_its_start(
    tmp_path: Path, state_dir: Path
) -> None:
    """As nest_asyncio has it, in notebooks: the channel that says so is heard meanwhile."""
    code = """
    from asyncio.tasks import _enter_task, _leave_task
    loop = asyncio.get_running_loop()
    def run_until_done(task):
        caller = asyncio.current_task()
        _leave_task(loop, caller)
        while not task.done():
            loop._run_once()
        _enter_task(loop, caller)
        return task.result()
    async with Supervisor.open(STATE) as sup:
        states = []
        for _ in range(3):
            run = await sup.start(Command(argv=["sleep", "0.1"]))
            waiting = loop.create_task(asyncio.wait_for(sup.wait(run.id), 30))
            states.append(run_until_done(waiting).state.value)
    report(states=states)
    """
    with HostScript(code, state_dir, tmp_path) as script:
        assert script.finish(PATIENCE)["states"] == ["finished"] * 3
        assert script.errors() == ""
