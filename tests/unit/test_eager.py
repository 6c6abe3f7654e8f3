"""Work that begins in its caller's turn, and goes on to its end whatever becomes of the caller."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Coroutine, Iterator
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import pytest

from durable_supervisor.journal.answer import Answer
from durable_supervisor.supervisor.loop.tasks import Tasks
from tests.support import PATIENCE

asker: ContextVar[str] = ContextVar("asker", default="nobody")


class Way:
    """Work that waits for all that work can wait for, and says how far it came."""

    WHOLE = ("answer", "another", "future", "turn", "timeout", "answer in a task", "end")

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.came: list[str] = []

    async def go(self) -> str:
        try:
            for name, wait in self.waits():
                self.came.append(name)
                await wait
            self.came.append("end")
            return "whole"
        except BaseException as error:
            self.came.append(type(error).__name__)
            raise

    def waits(self) -> Iterator[tuple[str, Coroutine[Any, Any, object]]]:
        yield "answer", self.answer()
        yield "another", self.answer()
        yield "future", self.future()
        yield "turn", asyncio.sleep(0)
        yield "timeout", self.timeout()
        yield "answer in a task", self.answer()

    async def answer(self) -> object:
        answer = Answer(self.loop)
        self.loop.call_soon(self.loop.call_soon, _settle, answer)
        return await answer

    async def future(self) -> object:
        future = self.loop.create_future()
        self.loop.call_soon(self.loop.call_soon, _settle, future)
        return await future

    async def timeout(self) -> object:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.001):
                await self.loop.create_future()
        return None


def _settle(answer: Answer | asyncio.Future[object]) -> None:
    if not answer.done():  # else that was cancelled
        answer.set_result(None)


async def test_it_begins_in_its_callers_turn_and_goes_on_within_the_answer() -> None:
    tasks, answer, order = Tasks(), Answer(asyncio.get_running_loop()), list[str]()

    async def work() -> str:
        order.append("begun")
        value: str = await answer
        order.append(value)
        return "whole"

    async def call() -> None:
        order.append(await tasks.finish(work()))

    def answered() -> None:
        answer.set_result("answered")
        order.append("told")

    caller = asyncio.create_task(call())
    await asyncio.sleep(0)
    assert order == ["begun"]
    assert len(tasks) == 1
    assert len(asyncio.all_tasks()) == 2, "the test and the caller: it has no task"
    asyncio.get_running_loop().call_soon(answered)
    await caller
    assert order == ["begun", "answered", "whole", "told"], "all in one turn"
    assert len(tasks) == 0


@pytest.mark.parametrize("refused", [False, True])
async def test_what_is_over_waits_for_no_garbage_collector(refused: bool) -> None:
    """A host may have none: then each start would stay in its memory."""
    tasks, loop, kept = Tasks(), asyncio.get_running_loop(), list[weakref.ref[object]]()

    async def work() -> None:
        kept.extend(map(weakref.ref, tasks._going_on))
        for _ in range(2):
            answer = Answer(loop)
            kept.append(weakref.ref(answer))
            loop.call_soon(answer.set_result, None)
            await answer
        if refused:
            raise ValueError

    async def call() -> None:
        with suppress(ValueError):
            await tasks.finish(work())

    gc.disable()
    try:
        await asyncio.create_task(call())
        caller = asyncio.create_task(call())
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.wait([caller])
        await tasks.settle()
        del caller
        await asyncio.sleep(0)  # the loop forgets its last callback
        assert len(kept) == 6
        assert [one() for one in kept if one() is not None] == []
    finally:
        gc.enable()


async def test_who_cancels_a_caller_knows_its_own_word(printed: list[object]) -> None:
    tasks, way = Tasks(), Way()

    async def call() -> None:
        await tasks.finish(way.go())

    caller = asyncio.create_task(call())
    await asyncio.sleep(0)
    caller.cancel("mine")
    with pytest.raises(asyncio.CancelledError, match="mine"):
        await caller
    await tasks.settle()
    assert way.came[-1] == "end"


async def test_what_another_loop_answers_is_refused(printed: list[object]) -> None:
    """Its answer comes in that loop's thread, and who waits would go on there."""
    tasks, another = Tasks(), asyncio.new_event_loop()
    answer = Answer(another)

    async def work() -> None:
        await answer

    with pytest.raises(RuntimeError, match="different loop"):
        await tasks.finish(work())
    answer.set_result(None)
    another.close()
    assert len(tasks) == 0


async def test_cancelled_at_every_turn_a_caller_leaves_it_whole(printed: list[object]) -> None:
    turns = 0
    while True:
        tasks, way = Tasks(), Way()

        async def call(tasks: Tasks = tasks, way: Way = way) -> object:
            return await tasks.finish(way.go())

        caller = asyncio.create_task(call())
        for _ in range(turns):
            await asyncio.sleep(0)
        if not caller.cancel():
            break
        await asyncio.wait([caller])
        assert caller.cancelled()
        await tasks.settle()
        assert way.came in ([], [*Way.WHOLE]), turns
        assert len(tasks) == 0
        turns += 1
    assert caller.result() == "whole"
    assert turns > 10


@pytest.mark.parametrize("turns", range(12))
async def test_ended_at_every_turn_it_is_told_so_where_it_waits(turns: int, printed: list[object]) -> None:
    tasks, way = Tasks(), Way()

    async def call() -> object:
        return await tasks.finish(way.go())

    caller = asyncio.create_task(call())
    for _ in range(1 + turns):
        await asyncio.sleep(0)
    tasks.cancel()
    await asyncio.wait([caller])
    await tasks.settle()
    assert caller.cancelled()
    assert way.came[-1] in ("CancelledError", "TimeoutError"), way.came


async def test_a_task_that_is_cancelled_before_it_begins_ends_the_work(printed: list[object]) -> None:
    tasks, ended, never = Tasks(), list[type[BaseException]](), asyncio.get_running_loop().create_future()

    async def work() -> None:
        try:
            await never
        except BaseException as error:
            ended.append(type(error))
            raise

    async def call() -> None:
        await tasks.finish(work())

    caller = asyncio.create_task(call())
    await asyncio.sleep(0)
    others = asyncio.all_tasks() - {caller, asyncio.current_task()}
    assert len(others) == 1, "it waits for something else than an answer: it is a task"
    tasks.cancel()
    await asyncio.wait([caller])
    assert caller.cancelled()
    assert ended == [asyncio.CancelledError]
    assert not never.done()


async def test_it_ends_with_the_task_that_whoever_ends_the_loop_finds(printed: list[object]) -> None:
    tasks, found = Tasks(), asyncio.create_task(asyncio.sleep(PATIENCE))
    tasks.cancel_with(found)

    async def work() -> None:
        await Answer(asyncio.get_running_loop())

    async def call() -> None:
        await tasks.finish(work())

    caller = asyncio.create_task(call())
    await asyncio.sleep(0)
    found.cancel()
    await asyncio.wait([caller, found])
    assert caller.cancelled()
    assert len(tasks) == 0


async def test_it_never_finds_its_callers_task(printed: list[object]) -> None:
    tasks, loop, found = Tasks(), asyncio.get_running_loop(), list[asyncio.Task[Any] | None]()

    async def work() -> None:
        found.append(asyncio.current_task())
        with pytest.raises(RuntimeError):
            async with asyncio.timeout(0):
                await asyncio.sleep(0)
        answer = Answer(loop)
        loop.call_soon(answer.set_result, None)
        await answer
        found.append(asyncio.current_task())
        await asyncio.sleep(0)
        found.append(asyncio.current_task())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.sleep(PATIENCE)

    async def call() -> asyncio.Task[Any] | None:
        await tasks.finish(work())
        return asyncio.current_task()

    caller = asyncio.create_task(call())
    assert await caller is caller
    assert found[:2] == [None, None]
    assert found[2] not in (None, caller, asyncio.current_task())


async def test_what_its_caller_has_set_holds_all_the_way_and_what_it_sets_stays_its_own() -> None:
    tasks, way, seen = Tasks(), Way(), list[str]()

    async def work() -> None:
        for _, wait in way.waits():
            seen.append(asker.get())
            await wait
        seen.append(asker.get())
        asker.set("the work")

    async def call() -> str:
        asker.set("the caller")
        await tasks.finish(work())
        return asker.get()

    assert await asyncio.create_task(call()) == "the caller"
    assert set(seen) == {"the caller"}
    assert len(seen) == len(Way.WHOLE)


async def test_settling_waits_for_what_has_begun_and_no_longer_than_it_may(printed: list[object]) -> None:
    tasks, answer, future = Tasks(), Answer(asyncio.get_running_loop()), asyncio.Future[None]()

    async def work() -> None:
        await answer
        await future

    async def call() -> None:
        await tasks.finish(work())

    caller = asyncio.create_task(call())
    await asyncio.sleep(0)
    settled = [asyncio.create_task(tasks.settle()) for _ in range(2)]
    await tasks.settle(0.001)
    assert len(tasks) == 1
    asyncio.get_running_loop().call_soon(answer.set_result, None)
    await tasks.settle(0.001)
    assert len(tasks) == 1
    assert not any(task.done() for task in (caller, *settled))
    future.set_result(None)
    await asyncio.gather(caller, *settled)
    assert len(tasks) == 0


async def test_a_hosts_own_tasks_and_its_task_factory_will_do(printed: list[object]) -> None:
    """As one that measures them: it awaits what it is given in a coroutine of its own."""

    def factory(
        loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Task[Any]:
        async def wrapped() -> object:
            return await work

        return asyncio.Task(wrapped(), loop=loop, **options)

    asyncio.get_running_loop().set_task_factory(factory)  # type: ignore[arg-type]
    tasks = Tasks()
    ways = [Way() for _ in range(3)]

    async def call(way: Way) -> object:
        return await tasks.finish(way.go())

    async with asyncio.timeout(PATIENCE):
        assert await asyncio.gather(*map(call, ways)) == ["whole"] * 3
    assert all(way.came == [*Way.WHOLE] for way in ways)


@pytest.mark.skipif(not hasattr(asyncio, "eager_task_factory"), reason="needs Python 3.12")
async def test_it_goes_on_in_a_host_of_eager_tasks(printed: list[object]) -> None:
    """Which begin within `create_task`, as work that was driven by hand does there."""
    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined]  # 3.12
    tasks = Tasks()
    ways = [Way() for _ in range(3)]

    async def call(way: Way) -> object:
        caller = asyncio.current_task()
        answer = await tasks.finish(way.go())
        assert asyncio.current_task() is caller
        return answer

    async with asyncio.timeout(PATIENCE):
        assert await asyncio.gather(*map(call, ways)) == ["whole"] * 3
    assert all(way.came == [*Way.WHOLE] for way in ways)


async def test_of_a_group_whose_other_task_fails_it_goes_on(printed: list[object]) -> None:
    tasks, way = Tasks(), Way()

    async def call() -> None:
        await tasks.finish(way.go())

    async def fail() -> None:
        raise ValueError("the other")

    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(call())
            group.create_task(fail())

    with pytest.raises(ExceptionGroup):
        await both()
    await tasks.settle()
    assert way.came == [*Way.WHOLE]


async def test_a_callers_timeout_is_the_callers(printed: list[object]) -> None:
    tasks, way = Tasks(), Way()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await tasks.finish(way.go())
    await tasks.settle()
    assert way.came == [*Way.WHOLE]
