"""One thread that owns one SQLite connection, for one event loop."""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]
Told = Callable[[Any], None]  # with what was returned or raised


async def connect(open_: Callable[[], sqlite3.Connection]) -> Connection:
    """What ``open_`` returns, called in the thread.  Raises what that raises, and OSError EAGAIN where no
    thread can be had.  An opening that is cancelled goes on to its end; then it is closed.
    """
    connection = Connection(open_)
    await connection.open()
    return connection


class Connection:
    """What is asked of it is done in that order, also where the caller was cancelled meanwhile."""

    def __init__(self, open_: Callable[[], sqlite3.Connection]) -> None:
        self._closing = False
        self._calls: SimpleQueue[Callable[[sqlite3.Connection], None] | None] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        tellers = [partial(_tell, self._loop, partial(_settle, one)) for one in (self._opened, self._closed)]
        # A daemon: a host that forgets to close must not hang at its exit, and SQLite survives a thread
        # that is cut off anywhere.
        self._thread = Thread(
            target=_serve, args=(open_, self._calls, *tellers), name="durable-supervisor-journal", daemon=True
        )

    async def open(self) -> None:
        """Once, before all else.  What it raises (see `connect`) leaves no thread behind."""
        try:
            self._thread.start()
        except RuntimeError as error:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from error
        try:
            await self._opened
        except BaseException:
            self._end()
            raise

    async def hop(self, work: Work[T]) -> T:
        """Run ``work`` in the thread and await it: a whole transaction a hop, not a statement."""
        answer: asyncio.Future[T] = self._loop.create_future()
        self.submit(work, partial(_settle, answer))
        return await answer

    def submit(self, work: Work[Any], then: Told | None = None) -> None:
        """As `hop`, for who awaits nothing: ``then`` is called on the loop with what came of ``work``.

        In the very turn in which the thread's word arrives: a future would do so one turn later, a task that
        awaits it two.  Without ``then`` nobody is told, and the loop sleeps on.
        """
        if self._closing:
            raise sqlite3.ProgrammingError("the connection is closed")
        self._calls.put(partial(_do, work, None if then is None else partial(_tell, self._loop, then)))

    async def close(self) -> None:
        """What was asked for before is done before.  Idempotent; cancelled, it goes on."""
        self._end()
        await asyncio.shield(self._closed)
        self._thread.join()  # which has said its last word

    def __del__(self) -> None:
        """Of a host that forgot to close: the thread, which does not know us, would wait for ever."""
        self._end()

    def _end(self) -> None:
        if not self._closing:
            self._closing = True
            self._calls.put(None)


def _tell(loop: asyncio.AbstractEventLoop, then: Told, result: object) -> None:
    """From the thread."""
    try:
        loop.call_soon_threadsafe(then, result)
    except RuntimeError:
        return  # the host has closed its loop without closing us: nobody waits any more


def _settle(answer: asyncio.Future[Any], result: object) -> None:
    if answer.done():
        return  # its caller was cancelled
    if isinstance(result, BaseException):
        answer.set_exception(result)
    else:
        answer.set_result(result)


# In the thread.


def _serve(
    open_: Callable[[], sqlite3.Connection],
    calls: SimpleQueue[Callable[[sqlite3.Connection], None] | None],
    opened: Told,
    closed: Told,
) -> None:
    try:
        connection = open_()
    except BaseException as error:  # noqa: BLE001  (whatever it is, it is the caller's)
        opened(error)
        return
    opened(None)
    try:
        with closing(connection):
            while (call := calls.get()) is not None:
                call(connection)
                del call  # it knows its caller, who may be forgotten before anybody calls again
    finally:
        closed(None)


def _do(work: Work[Any], tell: Told | None, connection: sqlite3.Connection) -> None:
    try:
        result = work(connection)
    except BaseException as error:  # noqa: BLE001  (whatever it is, it is the caller's)
        result = error
    if tell is not None:
        tell(result)
