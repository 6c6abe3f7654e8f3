"""Calling a call off: a token gives a result, a cancelled task gives none; neither leaves anything behind."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable
from contextvars import Context
from functools import partial
from typing import Any, TypeVarTuple

import pytest

from durable_supervisor import (
    CancellationToken,
    Command,
    ErrorCode,
    Limits,
    OutcomeKind,
    RunState,
    Supervisor,
    SupervisorError,
    run,
)
from durable_supervisor.api.errand import Errand
from tests.contract.hosts import refused
from tests.contract.runs import Marker, gone
from tests.run.conftest import Caller
from tests.support import PATIENCE, eventually_async

STUBBORN = "trap '' TERM; echo up; while :; do sleep 0.05; done"
Ts = TypeVarTuple("Ts")


async def ended(work: Awaitable[Any]) -> Any:
    """What comes of it; not waited for longer than a test may take."""
    async with asyncio.timeout(PATIENCE):
        return await work


async def appeared(marker: Marker, count: int = 1) -> None:
    await eventually_async(lambda: len(marker.alive()) >= count)


async def test_a_token_ends_it_with_a_result(caller: Caller, marker: Marker) -> None:
    token = CancellationToken()
    task = asyncio.create_task(caller.sh(f"setsid sleep {marker} & sleep {marker}", token=token))
    await appeared(marker, 2)
    assert token.cancel("enough")
    result = await ended(task)
    assert (result.reason, result.signal) == (OutcomeKind.CANCELLED, signal.SIGTERM)
    assert result.stop is not None
    assert result.cancel_reason == result.to_dict()["cancel_reason"] == "enough"
    gone(marker)


async def test_a_token_that_was_cancelled_before_starts_nothing(caller: Caller) -> None:
    token = CancellationToken()
    token.cancel("too late")
    request_id = caller.face.id("never")
    result = await caller.run(["true"], token=token, request_id=request_id)
    assert (result.run_id, result.reason, result.outcome) == (None, OutcomeKind.CANCELLED, None)
    assert result.cancel_reason == "too late"
    assert request_id not in [one.request_id for one in (await caller.face.sup.list(limit=1000)).runs]


async def test_a_token_while_it_waits_for_a_slot(state_dir: Any, marker: Marker) -> None:
    async with Supervisor.open(state_dir, max_concurrent_runs=1) as sup:
        first, token = CancellationToken(), CancellationToken()
        running = asyncio.create_task(run(Command(argv=["sleep", str(marker)]), supervisor=sup, token=first))
        await appeared(marker)
        waiting = asyncio.create_task(
            run(Command(argv=["true"]), supervisor=sup, token=token, queue=True, request_id="waits")
        )

        async def queued() -> bool:
            return any(one.state is RunState.QUEUED for one in (await sup.list()).runs)

        await eventually_async(queued)
        token.cancel()
        result = await ended(waiting)
        assert (result.reason, result.outcome) == (OutcomeKind.CANCELLED, None)
        assert (await sup.inspect(result.run_id)).state is RunState.NOT_STARTED
        first.cancel()
        await ended(running)


async def test_one_token_for_many(sup: Supervisor, marker: Marker) -> None:
    token = CancellationToken()
    calls = [run(Command(argv=["sleep", str(marker)]), supervisor=sup, token=token) for _ in range(4)]
    together = asyncio.gather(*calls)
    await appeared(marker, 4)
    token.cancel()
    assert {one.reason for one in await ended(together)} == {OutcomeKind.CANCELLED}


async def test_a_cancelled_task_leaves_nothing(tasks: Caller, marker: Marker) -> None:
    task = asyncio.create_task(tasks.sh(f"setsid sleep {marker} & sleep {marker}"))
    await appeared(marker, 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ended(task)
    gone(marker)


async def test_a_second_cancellation_skips_the_grace(tasks: Caller, marker: Marker) -> None:
    script = f"sleep {marker} & {STUBBORN}"
    task = asyncio.create_task(tasks.sh(script, limits=Limits(grace=600), request_id=tasks.face.id("two")))
    await appeared(marker)
    task.cancel()

    async def stopping() -> bool:
        runs = (await tasks.face.sup.list(limit=1000)).runs
        (mine,) = [one for one in runs if one.request_id == tasks.face.id("two")]
        return mine.state is RunState.STOPPING

    await eventually_async(stopping)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ended(task)
    gone(marker)


async def test_a_storm_of_cancellations_is_two(tasks: Caller, marker: Marker) -> None:
    """As a scope of anyio makes one: it cancels with every turn of the loop until the task gives in."""
    request_id = tasks.face.id("storm")
    script = f"sleep {marker} & {STUBBORN}"
    task = asyncio.create_task(tasks.sh(script, limits=Limits(grace=600), request_id=request_id))
    await appeared(marker)
    async with asyncio.timeout(PATIENCE):
        while not task.done():
            task.cancel()
            await asyncio.sleep(0)
    assert task.cancelled()
    gone(marker)
    (mine,) = [one for one in (await tasks.face.sup.list(limit=1000)).runs if one.request_id == request_id]
    told = await tasks.face.sup.events(mine.id, kinds={"control.received"})
    assert len(told.events) <= 2


async def test_cancellations_do_not_pile_up_before_a_loop_that_is_busy() -> None:
    class Counting(asyncio.SelectorEventLoop):
        handed = 0

        def call_soon_threadsafe(
            self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
        ) -> asyncio.Handle:
            self.handed += 1
            return super().call_soon_threadsafe(callback, *args, context=context)

    loop = Counting()
    errand = Errand(asyncio.Event().wait(), loop, loop.stop)
    for _ in range(1000):
        errand.cancel()
    assert loop.handed < 10
    await asyncio.to_thread(loop.run_forever)
    loop.close()
    with pytest.raises(SupervisorError, match="SUPERVISOR_CLOSED"):
        errand.result()


async def test_a_cancellation_at_any_moment_of_a_start(sup: Supervisor, marker: Marker) -> None:
    for moment in range(30):
        task = asyncio.create_task(run(Command(argv=["sleep", str(marker)]), supervisor=sup))
        for _ in range(moment):
            await asyncio.sleep(0)  # one turn of the loop further
        if moment % 3 == 0:
            await asyncio.sleep(moment / 5000)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ended(task)
        gone(marker)
    states = {one.state for one in (await sup.list(limit=1000)).runs}
    assert states <= {RunState.FINISHED, RunState.NOT_STARTED}


async def test_a_timeout_of_the_loop(sup: Supervisor, marker: Marker) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await run(Command(argv=["sleep", str(marker)]), supervisor=sup)
    gone(marker)


async def test_input_that_fails_ends_the_program(tasks: Caller, marker: Marker) -> None:
    async def broken() -> Any:
        yield b"some"
        raise OSError("the source is gone")

    with pytest.raises(OSError, match="the source is gone"):
        await ended(tasks.sh(f"cat; sleep {marker}", input=broken()))
    gone(marker)


async def test_input_that_never_ends_does_not_hold_up_the_end(sup: Supervisor) -> None:
    async def endless() -> Any:
        yield b"first\n"
        await asyncio.Event().wait()

    result = await ended(run(Command(argv=["head", "-n", "1"]), input=endless(), supervisor=sup))
    assert (result.exit_code, result.stdout, result.stdin_bytes) == (0, b"first\n", 6)


async def test_input_beyond_its_bound(sup: Supervisor) -> None:
    async def much() -> Any:
        for _ in range(100):
            yield b"x" * 1000

    async with refused(ErrorCode.INVALID_REQUEST) as caught:
        await ended(run(Command(argv=["cat"], max_stdin_bytes=5000), input=much(), supervisor=sup))
    assert caught().details["field"] == "input"


def test_a_token_says_it_once() -> None:
    token, heard = CancellationToken(), []
    forget = token.on_cancel(lambda: heard.append("forgotten"))
    token.on_cancel(lambda: heard.append("one"))
    forget()
    assert (token.cancelled, token.reason) == (False, None)
    assert [token.cancel("first"), token.cancel("second")] == [True, False]
    assert [token.cancelled, token.reason] == [True, "first"]
    assert heard == ["one"]
    token.on_cancel(lambda: heard.append("late"))
    assert heard == ["one", "late"]


def test_a_callback_that_fails_keeps_none_from_being_told() -> None:
    token, heard = CancellationToken(), []

    def fail() -> None:
        raise LookupError

    for step in (fail, lambda: heard.append(1), fail, lambda: heard.append(2)):
        token.on_cancel(step)
    with pytest.raises(LookupError):
        token.cancel()
    assert sorted(heard) == [1, 2]


def test_threads_that_cancel_at_once() -> None:
    for _ in range(50):
        firsts, heard = cancelled_at_once()
        assert firsts.count(True) == 1
        assert sorted(heard) == list(range(20))


def cancelled_at_once() -> tuple[list[bool], list[int]]:
    """What three threads were answered, and which callbacks came, that were given meanwhile."""
    token = CancellationToken()
    firsts: list[bool] = []
    heard: list[int] = []
    barrier = threading.Barrier(4)

    def cancel() -> None:
        barrier.wait()
        firsts.append(token.cancel())

    threads = [threading.Thread(target=cancel) for _ in range(3)]
    for one in threads:
        one.start()
    barrier.wait()
    for number in range(20):
        token.on_cancel(partial(heard.append, number))
    for one in threads:
        one.join()
    return firsts, heard


async def test_in_a_signal_handler(sup: Supervisor, marker: Marker) -> None:
    token = CancellationToken()
    before = signal.signal(signal.SIGUSR2, lambda *_: token.cancel())
    try:
        task = asyncio.create_task(run(Command(argv=["sleep", str(marker)]), supervisor=sup, token=token))
        await appeared(marker)
        os.kill(os.getpid(), signal.SIGUSR2)
        assert (await ended(task)).reason is OutcomeKind.CANCELLED
    finally:
        signal.signal(signal.SIGUSR2, before)


async def test_a_token_in_another_thread(sup: Supervisor, marker: Marker) -> None:
    token = CancellationToken()
    task = asyncio.create_task(run(Command(argv=["sleep", str(marker)]), supervisor=sup, token=token))
    await appeared(marker)
    threading.Thread(target=token.cancel).start()
    assert (await ended(task)).reason is OutcomeKind.CANCELLED
    assert token._callbacks == {}
