"""What a caller of the journal waits for, or a start for its worker's first word."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Any


class Answer:
    """A future for one waiter, which goes on in the very turn of the loop in which the answer comes.

    An `asyncio.Future` wakes its task one turn later.  To a start that comes alone, whose caches are cold,
    that turn is some 3 % of the time until its intent is durable.
    """

    # By this who waits knows that it may (`asyncio.isfuture`); True from the await until it has looked.
    _asyncio_future_blocking = False

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._then: Callable[[Answer], object] | None = None
        self._context: Context | None = None
        self._done = False
        self._value: Any = None
        self._error: BaseException | None = None

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def done(self) -> bool:
        return self._done

    def set_result(self, value: object) -> None:
        """From a callback of the loop, not from a task: who waits goes on within this call."""
        self._check_open()
        self._done, self._value = True, value
        then = self._take_then()
        if then is not None and self._context is not None:
            self._context.run(then, self)

    def set_exception(self, error: BaseException) -> None:
        """Who waits goes on in a turn of its own: the error's traceback would have each call that it went on
        within, and each of these has the error.
        """
        self._check_open()
        self._fail(error)

    def cancel(self, msg: object = None) -> bool:
        """By whoever cancels who waits, often another task: so that goes on in a turn of its own.

        By ``msg`` a canceller knows its own: a scope of anyio lets any other pass.
        """
        if self._done:
            return False
        self._fail(asyncio.CancelledError(*([] if msg is None else [msg])))
        return True

    def result(self) -> Any:
        """An error is raised once: its traceback has who waits, who has us."""
        if self._error is None:
            return self._value
        error, self._error = self._error, asyncio.InvalidStateError("its error was raised before")
        try:
            raise error
        finally:
            del error

    def add_done_callback(self, then: Callable[[Answer], object], *, context: Context) -> None:
        """By who waits, a task or one that does as tasks do; there is no other."""
        self._then, self._context = then, context

    def _check_open(self) -> None:
        if self._done:
            raise asyncio.InvalidStateError("it was answered, or cancelled, before")

    def _fail(self, error: BaseException) -> None:
        self._done, self._error = True, error
        then = self._take_then()
        if then is not None:
            self._loop.call_soon(then, self, context=self._context)

    def _take_then(self) -> Callable[[Answer], object] | None:
        """Who waits has us: kept, either would live until the garbage collector comes, if it ever does."""
        then, self._then = self._then, None
        return then

    def __await__(self) -> Generator[Answer, None, Any]:
        if not self._done:
            self._asyncio_future_blocking = True
            yield self
        return self.result()
