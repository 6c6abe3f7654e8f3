"""When the -wal file is written back: between commits, not inside one that a caller waits for.

SQLite by itself does it in the commit that makes the file long enough, which then takes some ten
times as long.  A checkpoint in between costs a caller only what is left of it when the call comes.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import suppress

import aiosqlite

from . import thread

CALLS = 140  # some 7 pages each: about as long as SQLite would let the file grow
PATIENCE = 3  # times as many calls before nobody's commit is a reason to wait any longer
LULL_SECONDS = 0.002  # after a commit: whoever was just answered has something to do first

# Ours fail, or never get their turn, only on a machine in trouble.  Then SQLite bounds the file.
SQL_LAST_RESORT = "PRAGMA wal_autocheckpoint = 4000"
# PASSIVE waits for no reader: what one still needs stays for the next time.
SQL_CHECKPOINT = "PRAGMA wal_checkpoint(PASSIVE)"


class Checkpoints:
    """Those of one journal, in its writer's thread, which does one thing after the other.

    ``busy``: is a batch in the thread?
    """

    def __init__(
        self, writer: aiosqlite.Connection, loop: asyncio.AbstractEventLoop, busy: Callable[[], bool]
    ) -> None:
        self._writer = writer
        self._loop = loop
        self._calls = 0  # committed since the last one
        self._timer: asyncio.TimerHandle | None = None
        self._busy = busy

    def committed(self, calls: int) -> None:
        """A batch of so many calls is committed, and its callers are answered."""
        self._calls += calls
        if self._calls >= CALLS and self._timer is None:
            self._timer = self._loop.call_later(LULL_SECONDS, self._due)

    def close(self) -> None:
        """Begin none any more: closing the connection does the last one."""
        if self._timer is not None:
            self._timer.cancel()

    def _due(self) -> None:
        self._timer = None
        if self._busy() and self._calls < CALLS * PATIENCE:
            return  # the end of that batch asks again
        self._calls = 0
        thread.submit(self._writer, _checkpoint, self._loop, lambda _: None)


def _checkpoint(conn: sqlite3.Connection) -> None:
    with suppress(sqlite3.Error):  # nothing is lost; a disk that fails is told of by the next commit
        conn.execute(SQL_CHECKPOINT).fetchone()
