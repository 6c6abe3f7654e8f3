"""What a caller of the journal waits for is to a task as a future, but for the turn in which it goes on."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import pytest

from durable_supervisor.journal.answer import Answer

asker: ContextVar[str] = ContextVar("asker", default="nobody")


async def waiting(answer: Answer, heard: list[object]) -> asyncio.Task[object]:
    """A task that awaits it by now."""

    async def ask() -> object:
        asker.set("the task")
        value = await answer
        task = asyncio.current_task()
        assert task is not None
        heard.extend([value, asker.get(), task.get_name()])
        return value

    task = asyncio.create_task(ask(), name="asks")
    await asyncio.sleep(0)
    return task


async def test_the_task_goes_on_within_the_call_and_is_itself() -> None:
    loop = asyncio.get_running_loop()
    answer, heard, later = Answer(loop), list[object](), list[object]()
    task = await waiting(answer, heard)

    def answers() -> None:
        answer.set_result("yes")
        later.extend(heard)

    loop.call_soon(answers)
    assert await task == "yes"
    assert later == ["yes", "the task", "asks"]
    assert asker.get() == "nobody"
    assert await answer == "yes", "there already: nothing is waited for"


async def test_an_error_is_raised_where_it_is_awaited() -> None:
    loop = asyncio.get_running_loop()
    answer = Answer(loop)
    task = await waiting(answer, [])
    loop.call_soon(answer.set_exception, ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        await task


async def test_a_cancelled_task_is_told_at_once_and_its_answer_is_nobodys() -> None:
    answer, heard = Answer(asyncio.get_running_loop()), list[object]()
    task = await waiting(answer, heard)
    assert task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert answer.done()
    assert not answer.cancel()
    assert not heard


async def test_a_task_may_be_cancelled_by_what_it_is_told_itself() -> None:
    """As one of several that wait in a `asyncio.TaskGroup` whose other one has failed."""
    loop = asyncio.get_running_loop()
    first, second, heard = Answer(loop), Answer(loop), list[object]()
    tasks = [await waiting(first, heard), await waiting(second, heard)]
    tasks[0].add_done_callback(lambda _: tasks[1].cancel())
    loop.call_soon(first.set_result, 1)
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert done[0] == 1
    assert isinstance(done[1], asyncio.CancelledError)
    assert second.done()


async def test_a_caller_with_a_deadline_gets_its_timeout() -> None:
    answer = Answer(asyncio.get_running_loop())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await answer
    assert answer.done()


async def test_an_answer_is_given_once() -> None:
    loop = asyncio.get_running_loop()
    answered, cancelled = Answer(loop), Answer(loop)
    answered.set_result(1)
    assert cancelled.cancel()
    for one in (answered, cancelled):
        with pytest.raises(asyncio.InvalidStateError):
            one.set_result(2)
        with pytest.raises(asyncio.InvalidStateError):
            one.set_exception(ValueError())
        assert not one.cancel()
    assert [await answered, await answered] == [1, 1]
    for error in (asyncio.CancelledError, asyncio.InvalidStateError):
        with pytest.raises(error):
            await cancelled
