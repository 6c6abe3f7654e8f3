"""Work that goes on beside its callers, and that closing waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from ..model.errors import SupervisorError
from ..process.shortage import is_shortage
from .logs import report

T = TypeVar("T")


class Tasks:
    """Tasks of one owner, held on to until they are done: the loop itself does not (asyncio.create_task)."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin work whose caller awaits it."""
        task = asyncio.create_task(work, name="durable-supervisor")
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """What ``work`` answers.  It goes on to its end, also where its caller is cancelled.

        As `asyncio.shield` of a task, whose answer comes a turn of the loop later.
        """
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        _ = self.spawn(_tell(work, answer))
        return await answer

    def spawn_unawaited(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin work that nobody awaits: its failure is told to the host's logging, and is no other's."""
        _ = self.spawn(_guarded(work))

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # a caller that was cancelled asks for it no more, and the loop would print it

    def cancel(self) -> None:
        """End what still goes on."""
        for task in self._tasks:
            task.cancel()

    async def settle(self, timeout: float | None = None) -> None:
        """Wait until nothing goes on any more, up to ``timeout`` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self._tasks:
                    await asyncio.wait(set(self._tasks))


def is_passing(error: Exception) -> bool:
    """Is the same worth trying again in a moment?"""
    return error.retryable if isinstance(error, SupervisorError) else is_shortage(error)


async def _tell(work: Coroutine[Any, Any, T], answer: asyncio.Future[T]) -> None:
    try:
        result = await work
    except Exception as error:  # noqa: BLE001  (whatever it is, it is the caller's)
        if not answer.done():  # else that was cancelled
            answer.set_exception(error)
    except BaseException:  # the loop ends
        answer.cancel()
        raise
    else:
        if not answer.done():
            answer.set_result(result)


async def _guarded(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception as error:  # noqa: BLE001  (whatever it is)
        report(error)
