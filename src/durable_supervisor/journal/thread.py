"""One thread that owns one SQLite connection: the only use of aiosqlite."""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Generic, Self, TypeVar, cast

import aiosqlite

T = TypeVar("T")

# The busy timeout of one try, in seconds: short, so that between tries the loop can
# drop cancelled work and take in what has arrived.
BUSY_TRY_SECONDS = 1.0
JOIN_SECONDS = 5.0


async def connect(database: str, *, uri: bool) -> aiosqlite.Connection:
    """A connection in autocommit mode: every BEGIN is ours.  Raises sqlite3.Error, OSError."""
    connection = aiosqlite.connect(
        database, uri=uri, isolation_level=None, timeout=BUSY_TRY_SECONDS, cached_statements=256
    )
    # aiosqlite 0.22 runs an ordinary thread: a host that forgets to close would hang at
    # exit.  There is no public way to say daemon (before 0.22 the connection is the thread);
    # SQLite survives a thread cut off anywhere.
    worker: Any = getattr(connection, "_thread", connection)
    worker.daemon = True
    try:
        opened = await connection
    except BaseException as error:
        if worker.ident is None:  # it has never begun
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from error
        # The thread has been told to end and will tell our loop so: it must not find it closed.
        worker.join(JOIN_SECONDS)
        raise
    opened.row_factory = sqlite3.Row
    return opened


async def hop(connection: aiosqlite.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    """Run ``work`` on the connection's thread and await it.

    aiosqlite hops once per statement, which caps it at some thousand commits a
    second; a whole batch per hop does not.  There is no public call for that
    (``_execute`` in 0.22), so the private one is used here and nowhere else.
    """
    execute = cast(Callable[..., Awaitable[T]], connection._execute)
    return await execute(work, connection._conn)


class _Answer(Generic[T]):
    """Stands where aiosqlite expects a future, and calls back in the very turn of the loop in which the
    thread's word arrives.  A future would do that one turn later, a task that awaits it two.

    And for its loop: should a host have closed that without closing us, nobody waits any more, and the
    thread does not end with a traceback.
    """

    __slots__ = ("_loop", "set_exception", "set_result")

    def __init__(self, loop: asyncio.AbstractEventLoop, then: Callable[[T | BaseException], None]) -> None:
        self._loop = loop
        self.set_result: Callable[[T], None] = then
        self.set_exception: Callable[[BaseException], None] = then

    def get_loop(self) -> Self:
        return self

    def call_soon_threadsafe(self, call: Callable[..., None], *arguments: object) -> None:
        with suppress(RuntimeError):  # it is closed
            self._loop.call_soon_threadsafe(call, *arguments)

    def done(self) -> bool:
        return False  # nobody cancels it


def submit(
    connection: aiosqlite.Connection,
    work: Callable[[sqlite3.Connection], T],
    loop: asyncio.AbstractEventLoop,
    then: Callable[[T | BaseException], None],
) -> None:
    """As `hop`, for who awaits nothing: ``then`` is called on the loop with what ``work`` returned or raised.

    (``_tx`` is the thread's queue.)
    """
    answer: Any = _Answer(loop, then)
    connection._tx.put_nowait((answer, partial(work, connection._conn)))
