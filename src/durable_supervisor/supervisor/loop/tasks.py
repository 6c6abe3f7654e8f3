"""Work that goes on beside its callers, and that closing waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from ...model.errors import SupervisorError
from ...process.shortage import is_shortage
from .eager import EagerWork
from .logs import report

T = TypeVar("T")


class Tasks:
    """Tasks of one owner, and eager work that has none, held on to until they are done.

    The loop itself does not hold on to them (asyncio.create_task).
    """

    def __init__(self) -> None:
        self._going_on: set[asyncio.Task[Any] | EagerWork[Any]] = set()
        self._at_rest = asyncio.Event()

    def __len__(self) -> int:
        return len(self._going_on)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin work whose caller awaits it."""
        task = asyncio.create_task(work, name="durable-supervisor")
        self._going_on.add(task)
        task.add_done_callback(self._done)
        return task

    def finish(self, work: Coroutine[Any, Any, T]) -> Awaitable[T]:
        """Begin work now, whose caller awaits the answer.

        It goes on to its end, also where that caller is cancelled.
        """
        eager = EagerWork(work, self.spawn, self._forget)
        self._going_on.add(eager)
        eager.begin()
        return eager.answer

    def spawn_unawaited(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin work that nobody awaits: its failure is told to the host's logging, and is no other's."""
        _ = self.spawn(_guarded(work))

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._forget(task)
        if not task.cancelled():
            task.exception()  # a caller that was cancelled asks for it no more, and the loop would print it

    def _forget(self, one: asyncio.Task[Any] | EagerWork[Any]) -> None:
        self._going_on.discard(one)
        if not self._going_on:
            self._at_rest.set()

    def cancel(self) -> None:
        """End what still goes on."""
        for one in self._going_on:
            one.cancel()

    def cancel_with(self, task: asyncio.Task[Any]) -> None:
        """Should ``task`` be cancelled, so is all that goes on.

        Who cancels all tasks of a loop, as `asyncio.run` does at its end, finds no `EagerWork` among them.
        """
        task.add_done_callback(lambda ended: self.cancel() if ended.cancelled() else None)

    async def settle(self, timeout: float | None = None) -> None:
        """Wait until nothing goes on any more, up to ``timeout`` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self._going_on:
                    self._at_rest.clear()
                    await self._at_rest.wait()


def is_passing(error: Exception) -> bool:
    """Is the same worth trying again in a moment?"""
    return error.retryable if isinstance(error, SupervisorError) else is_shortage(error)


async def _guarded(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception as error:  # noqa: BLE001  (whatever it is)
        report(error)
