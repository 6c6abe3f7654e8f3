"""Work that begins in its caller's turn of the loop, and goes on without its caller.

A task begins in the next turn.  To a start that comes alone, whose caches are cold, that turn and the making
of the task are some 2 % of the time until its intent is durable.
"""

from __future__ import annotations

import asyncio

# What a task of another make is to call: see "Task lifetime support" in asyncio's documentation (Extending).
from asyncio.tasks import _enter_task, _leave_task
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any, Generic, TypeVar

from ...journal.answer import Answer

T = TypeVar("T")


class EagerWork(Generic[T]):
    """A coroutine that goes on to its end, whatever becomes of who waits for its ``answer``.

    Like an eager task (`asyncio.eager_task_factory`, from Python 3.12 on) it begins at once; but that is a
    task from its first wait on.  This one has none as long as it waits for nothing but an `Answer`: it is
    driven by hand, and goes on in the very turn in which that comes.  Once it waits for anything else it goes
    on in a task, which ``spawn`` makes.  ``forget`` is called when it has that task, or is about to answer.

    By hand it has no task: what asks for one (`asyncio.timeout`) is told so, and never gets its caller's.
    """

    def __init__(
        self,
        work: Coroutine[Any, Any, T],
        spawn: Callable[[Coroutine[Any, Any, T]], asyncio.Task[T]],
        forget: Callable[[EagerWork[T]], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.answer = Answer(self._loop)
        self._work = work
        self._spawn = spawn
        self._forget = forget
        self._context = copy_context()
        self._waits_for: Answer | None = None

    def begin(self) -> None:
        """Make the first step, within one of the caller's task.  Raises what ends the loop."""
        caller = asyncio.current_task(self._loop)
        if caller is None:
            self._context.run(self._step)
            return
        _leave_task(self._loop, caller)
        try:
            self._context.run(self._step)
        finally:
            _enter_task(self._loop, caller)

    def cancel(self) -> None:
        """End it where it waits."""
        if self._waits_for is not None:
            self._waits_for.cancel()

    def _step(self, _: object = None) -> None:
        result, error = None, None
        try:
            self._wait(self._work.send(None))
            return
        except StopIteration as end:
            result = end.value
        except BaseException as raised:  # noqa: BLE001  (whatever it is, it is the caller's)
            error = raised
        # Not within the handlers: who waits may go on within this call, and would find an exception there.
        self._forget(self)
        self._tell(result, error)
        try:
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise error
        finally:
            del error  # its traceback has this frame

    def _wait(self, waits_for: object) -> None:
        if isinstance(waits_for, Answer) and waits_for.get_loop() is self._loop:  # a task refuses another's
            waits_for._asyncio_future_blocking = False  # as a task does that has looked
            waits_for.add_done_callback(self._step, context=self._context)
            self._waits_for = waits_for
            return
        task = self._spawn(_Waiting(self._work, waits_for))
        task.add_done_callback(self._task_done)
        self._forget(self)

    def _task_done(self, task: asyncio.Task[T]) -> None:
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        self._tell(None if error is not None else task.result(), error)

    def _tell(self, result: T | None, error: BaseException | None) -> None:
        if self.answer.done():
            return  # its caller was cancelled
        if error is None:
            self.answer.set_result(result)
        elif isinstance(error, Exception):
            self.answer.set_exception(error)
        else:  # it was cancelled, or the loop ends
            self.answer.cancel()


class _Waiting(Coroutine[Any, Any, T]):
    """A coroutine that waits for something already: a task goes on with it from there."""

    def __init__(self, work: Coroutine[Any, Any, T], waits_for: object) -> None:
        self._work = work
        self._waits_for = [waits_for]  # until the task has been given it

    def send(self, value: Any) -> Any:
        return self._waits_for.pop() if self._waits_for else self._work.send(value)

    def throw(self, *error: Any) -> Any:
        """Also by a task that is cancelled before its first step: then nothing is waited for any more."""
        self._waits_for.clear()
        return self._work.throw(*error)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> _Waiting[T]:
        """For whoever wraps it, such as a host's task factory."""
        return self

    def __iter__(self) -> _Waiting[T]:
        return self

    def __next__(self) -> Any:
        return self.send(None)
