"""When the -wal file is written back or made longer: between commits, not in one that a caller waits for.

SQLite by itself does it in the commit that makes the file long enough, which then takes some ten
times as long.  A checkpoint in between costs a caller only what is left of it when the call comes.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import suppress

from . import thread
from .opening import SQL_CHECKPOINT
from .room import WalRoom

CALLS = 250  # some 5 pages each: about as long as SQLite would let the file grow
PATIENCE = 3  # times as many calls before nobody's commit is a reason to wait any longer
# From a commit to a checkpoint that is due: who was just answered goes first, and mostly has
# `run_idle_work` called before that.
DELAY_SECONDS = 0.01


class Checkpoints:
    """Those of one journal, in its writer's thread, which does one thing after the other.

    ``busy``: is a batch in the thread?
    """

    def __init__(
        self,
        writer: thread.Connection,
        room: WalRoom,
        loop: asyncio.AbstractEventLoop,
        busy: Callable[[], bool],
    ) -> None:
        self._writer = writer
        self._room = room
        self._loop = loop
        self._calls = 0  # committed since the last one
        self._timer: asyncio.TimerHandle | None = None
        self._busy = busy

    def committed(self, calls: int) -> None:
        """A batch of so many calls is committed, and its callers are answered."""
        self._calls += calls
        if self._timer is None and self._calls >= CALLS:
            self._timer = self._loop.call_later(DELAY_SECONDS, self._due)

    def run_idle_work(self) -> None:
        """Nobody is being served: begin a checkpoint if one is due, else make room if it is short.

        Room is made only here, so for callers that come alone.  To several that share a commit it is not
        worth a sync: they share what their commit takes longer for the want of it.
        """
        if self._calls >= CALLS:
            self._begin()
        elif self._room.is_short():
            self._writer.submit(lambda _: self._room.make())

    def close(self) -> None:
        """Begin none any more: closing the connection does the last one."""
        self._cancel()

    def _due(self) -> None:
        self._timer = None
        if self._busy() and self._calls < CALLS * PATIENCE:
            return  # the end of that batch asks again
        self._begin()

    def _begin(self) -> None:
        self._cancel()
        self._calls = 0
        self._writer.submit(self._checkpoint)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _checkpoint(self, conn: sqlite3.Connection) -> None:
        with suppress(sqlite3.Error):  # nothing is lost; a disk that fails is told of by the next commit
            conn.execute(SQL_CHECKPOINT).fetchone()
            self._room.begins_anew()
