"""What work that begins in its caller's turn raises, and what becomes of it where its loop ends."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from durable_supervisor.journal.answer import Answer
from durable_supervisor.supervisor.loop.tasks import Tasks


def waits_of(loop: asyncio.AbstractEventLoop) -> dict[str, Callable[[], Coroutine[Any, Any, object]]]:
    async def nothing() -> None: ...

    async def answer() -> None:
        answer = Answer(loop)
        loop.call_soon(answer.set_result, None)
        await answer

    return {"at once": nothing, "by hand": answer, "in a task": lambda: asyncio.sleep(0)}


@pytest.mark.parametrize("where", ["at once", "by hand", "in a task"])
@pytest.mark.parametrize("kind", [ValueError, asyncio.CancelledError, TimeoutError, StopAsyncIteration])
async def test_an_error_is_its_callers_once(
    where: str, kind: type[BaseException], printed: list[object]
) -> None:
    loop, tasks, heard = asyncio.get_running_loop(), Tasks(), list[object]()
    loop.set_exception_handler(lambda _, context: heard.append(context))
    wait = waits_of(loop)[where]

    async def work() -> None:
        await wait()
        raise kind("no")

    with pytest.raises(kind) as caught:
        await tasks.finish(work())
    assert caught.value.__context__ is None, "nothing of how it was driven"
    assert len(tasks) == 0

    async def call() -> None:
        await tasks.finish(work())

    caller = asyncio.create_task(call())
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.wait([caller])
    await tasks.settle()
    del caller, caught
    gc.collect()
    assert heard == []


async def test_a_callers_own_error_knows_nothing_of_how_it_was_told(printed: list[object]) -> None:
    tasks, wait = Tasks(), waits_of(asyncio.get_running_loop())["by hand"]

    async def call() -> None:
        await tasks.finish(wait())
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as caught:
        await asyncio.create_task(call())
    assert caught.value.__context__ is None


@pytest.mark.parametrize("where", ["at once", "by hand", "in a task"])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_what_ends_the_loop_does_and_its_caller_is_cancelled(
    where: str, kind: type[BaseException], printed: list[object]
) -> None:
    loop = asyncio.new_event_loop()
    ended: list[type[BaseException]] = []

    async def main() -> None:
        tasks, wait = Tasks(), waits_of(loop)[where]

        async def work() -> None:
            await wait()
            raise kind

        try:
            await tasks.finish(work())
        except BaseException as error:
            ended.append(type(error))
            raise

    task = loop.create_task(main())
    with pytest.raises(kind):
        loop.run_until_complete(task)
    if not task.done():
        with suppress(asyncio.CancelledError):
            loop.run_until_complete(task)
    loop.close()
    assert ended == [kind if where == "at once" else asyncio.CancelledError]


@pytest.mark.parametrize("debug", [False, True])
def test_a_loop_that_is_closed_meanwhile_leaves_no_word(debug: bool, printed: list[object]) -> None:
    loop, ended = asyncio.new_event_loop(), list[type[BaseException]]()
    loop.set_debug(debug)

    async def work() -> None:
        try:
            await Answer(loop)
        except BaseException as error:
            ended.append(type(error))
            raise

    async def main() -> None:
        caller = asyncio.create_task(call(Tasks()))
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.wait([caller])

    async def call(tasks: Tasks) -> None:
        await tasks.finish(work())

    loop.run_until_complete(main())
    loop.close()
    gc.collect()
    assert ended == [GeneratorExit]


async def test_a_task_that_cannot_be_had_is_its_callers_error(printed: list[object]) -> None:
    tasks, ended = Tasks(), list[type[BaseException]]()

    async def work() -> None:
        try:
            await asyncio.sleep(0)
        except BaseException as error:
            ended.append(type(error))
            raise

    def factory(_: object, work: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:
        raise ValueError("no more tasks")

    asyncio.get_running_loop().set_task_factory(factory)  # type: ignore[arg-type]
    try:
        with pytest.raises(ValueError, match="no more tasks"):
            await tasks.finish(work())
    finally:
        asyncio.get_running_loop().set_task_factory(None)
    assert len(tasks) == 0
    gc.collect()
    assert ended == [GeneratorExit]
