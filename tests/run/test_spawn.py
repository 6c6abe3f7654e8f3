"""A program to talk to."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest

from durable_supervisor import (
    CancellationToken,
    Command,
    ErrorCode,
    OutcomeKind,
    Process,
    RunState,
    Supervisor,
    SupervisorError,
    Terminal,
    spawn,
)
from tests.contract.hosts import refused
from tests.contract.runs import Marker, gone
from tests.run.conftest import Caller
from tests.support import PATIENCE, eventually_async


@pytest.fixture
def answers(tasks: Caller) -> Any:
    return tasks.supervisor


async def printed(process: Process, text: bytes) -> None:
    """Return once it has printed ``text``."""
    seen = b""
    async with asyncio.timeout(PATIENCE):
        async for event in process.events():
            seen += event.data
            if text in seen:
                return
    pytest.fail(f"{text!r} was never printed: {seen!r}")


async def test_a_conversation(answers: Any) -> None:
    async with spawn(Command(argv=["cat"]), capture=True, supervisor=answers) as process:
        await process.write_stdin(b"one\n")
        await printed(process, b"one\n")
        await process.write_stdin(b"two\n")
        await printed(process, b"one\ntwo\n")  # an iteration that ended has ended nothing
        await process.close_stdin()
        result = await process.wait()
        assert (result.exit_code, result.stdout, result.stdin_bytes) == (0, b"one\ntwo\n", 8)
        assert await process.wait() == result
        assert [event async for event in process.events()][-1].result == result
    seen = await answers.inspect(process.run_id)
    assert (seen.lifetime, seen.limits["timeout"]) == ("scope", None)


async def test_starts_as_tasks_of_their_own(answers: Any) -> None:
    async with asyncio.TaskGroup() as group:
        starts = [group.create_task(spawn(Command(argv=["true"]), supervisor=answers)) for _ in range(2)]
    processes = [start.result() for start in starts]
    assert [(await process.wait()).success for process in processes] == [True, True]
    for process in processes:
        await process.close()
    opening = asyncio.create_task(spawn(Command(argv=["cat"]), supervisor=answers))
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    listed = (await answers.list()).runs  # its filter would go by the journal, which follows in a moment
    assert not [run for run in listed if run.state is RunState.RUNNING]


async def test_terminating_it(answers: Any, marker: Marker) -> None:
    command = Command(
        argv=["sh", "-c", f"trap '' TERM; sleep {marker} & echo up; while :; do sleep 0.05; done"]
    )
    async with spawn(command, supervisor=answers) as process:
        await printed(process, b"up")
        receipt = await process.terminate(grace=0.1)
        assert receipt.confirmed
        assert receipt.outcome is not None
        assert (receipt.outcome.kind, receipt.outcome.signal) == (OutcomeKind.CANCELLED, signal.SIGKILL)
        gone(marker)
        assert (await process.terminate()).result == "already_ended"
        assert (await process.wait()).reason is OutcomeKind.CANCELLED


async def test_closing_ends_it_and_is_idempotent(answers: Any, marker: Marker) -> None:
    process = await spawn(Command(argv=["sleep", str(marker)]), supervisor=answers)
    await eventually_async(lambda: marker.alive())
    await asyncio.gather(process.close(), process.close())
    gone(marker)
    await process.close()
    assert (await process.wait()).reason is OutcomeKind.CANCELLED


async def test_closing_it_while_others_wait_for_its_result(sup: Supervisor, marker: Marker) -> None:
    process = await spawn(Command(argv=["sleep", str(marker)]), capture=True, supervisor=sup)
    waiting = [asyncio.create_task(process.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    await process.close()
    assert {one.reason for one in await asyncio.gather(*waiting)} == {OutcomeKind.CANCELLED}


async def test_closing_one_that_has_ended_changes_nothing(sup: Supervisor) -> None:
    process = await spawn(Command(argv=["sh", "-c", "exit 5"]), supervisor=sup)
    await sup.wait(str(process.run_id), timeout=PATIENCE)
    await process.close()
    assert (await process.wait()).exit_code == 5


async def test_a_wait_that_is_given_up_ends_nothing(sup: Supervisor) -> None:
    async with spawn(Command(argv=["cat"]), supervisor=sup) as process:
        async with refused(ErrorCode.WAIT_TIMEOUT):
            await process.wait(timeout=0.05)
        waiting = asyncio.create_task(process.wait())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await process.write_stdin(b"still here", eof=True)
        await printed(process, b"still here")
        assert (await process.wait()).exit_code == 0


async def test_several_readers(sup: Supervisor) -> None:
    async with spawn(Command(argv=["cat"]), supervisor=sup) as process:
        readers = [asyncio.create_task(printed(process, b"for all")) for _ in range(3)]
        await process.write_stdin(b"for all\n")
        await asyncio.gather(*readers)
        await process.signal("KILL")
        assert (await process.wait()).signal == signal.SIGKILL


async def test_with_a_terminal(answers: Any) -> None:
    command = Command(
        argv=["sh", "-c", "trap 'stty size; exit 6' WINCH; stty size; while :; do sleep 0.05; done"]
    )
    terminal = Terminal(columns=100, rows=30)
    async with spawn(command, pty=terminal, supervisor=answers) as process:
        await printed(process, b"30 100")
        await process.resize(120, 40)
        await printed(process, b"40 120")
        assert (await process.wait()).exit_code == 6
    async with spawn(Command(argv=["tty"]), pty=True, capture=True, supervisor=answers) as process:
        assert b"/dev/pts/" in (await process.wait()).stdout


async def test_a_stdin_of_its_own(sup: Supervisor) -> None:
    async with spawn(Command(argv=["cat"], stdin=b"given"), capture=True, supervisor=sup) as process:
        assert (await process.wait()).stdout == b"given"


async def test_a_token(sup: Supervisor, marker: Marker) -> None:
    token = CancellationToken()
    async with spawn(Command(argv=["sleep", str(marker)]), token=token, supervisor=sup) as process:
        await eventually_async(lambda: marker.alive())
        token.cancel()
        assert (await process.wait(PATIENCE)).reason is OutcomeKind.CANCELLED
        gone(marker)
    async with spawn(Command(argv=["true"]), token=token, supervisor=sup) as process:
        assert (await process.wait()).outcome is None
        for control in (process.write_stdin(b"x"), process.terminate(), process.resize(80, 24)):
            async with refused(ErrorCode.NOT_RUNNING):
                await control


async def test_it_is_awaited_or_entered(sup: Supervisor, marker: Marker) -> None:
    process = await spawn(Command(argv=["sleep", str(marker)]), supervisor=sup)
    async with process as same:
        assert same is process
    gone(marker)
    starting = [spawn(Command(argv=["true"]), supervisor=sup) for _ in range(2)]
    processes = await asyncio.gather(*starting)
    assert len({one.run_id for one in processes}) == 2
    for one in processes:
        await one.close()
    async with refused(ErrorCode.INVALID_REQUEST):
        _ = spawn(Command(argv=["no-such-program"]), supervisor=sup)  # said at once, as by stream()


async def test_an_error_of_the_service_ends_no_detached_run(sup: Supervisor, marker: Marker) -> None:
    """It may just be away: who left the context so left the program alone."""
    away = SupervisorError(ErrorCode.SERVICE_UNAVAILABLE, "away", hint="wait")
    command = Command(argv=["sleep", str(marker)])
    leaving = spawn(command, lifetime="detached", supervisor=sup)
    async with refused(ErrorCode.SERVICE_UNAVAILABLE), leaving as process:
        raise away
    assert (await sup.inspect(str(process.run_id))).state is RunState.RUNNING
    await process.close()
    gone(marker)


async def test_a_cancelled_spawn_leaves_nothing(sup: Supervisor, marker: Marker) -> None:
    for moment in range(12):
        task = asyncio.ensure_future(spawn(Command(argv=["sleep", str(marker)]), supervisor=sup))
        for _ in range(moment):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gone(marker)
    assert {one.state for one in (await sup.list()).runs} <= {RunState.FINISHED}


async def test_a_detached_one_outlives_nothing_but_its_host(sup: Supervisor, marker: Marker) -> None:
    command = Command(argv=["sleep", str(marker)])
    async with spawn(command, lifetime="detached", supervisor=sup) as process:
        assert (await sup.inspect(str(process.run_id))).lifetime == "detached"
    gone(marker)  # what is left, is ended: its lifetime is about a host that dies
