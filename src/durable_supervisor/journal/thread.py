"""One thread that owns one SQLite connection: the only use of aiosqlite."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

import aiosqlite

T = TypeVar("T")

# The busy timeout of one try, in seconds: short, so that between tries the loop can
# drop cancelled work and take in what has arrived.
BUSY_TRY_SECONDS = 1.0
JOIN_SECONDS = 5.0


async def connect(database: str, *, uri: bool) -> aiosqlite.Connection:
    """A connection in autocommit mode: every BEGIN is ours.  Raises sqlite3.Error."""
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
    except BaseException:
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
