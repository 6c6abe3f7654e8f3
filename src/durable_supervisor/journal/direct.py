"""The owner's journal without an event loop: it works in the thread that asks, which waits for it."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from ..model.errors import Phase
from . import migrate, opening
from .batch import Batches, Failed
from .errors import busy, is_busy, translate
from .reader import in_snapshot

T = TypeVar("T")


class DirectJournal:
    """As `connection.Journal`, for whoever asks one thing after the other: no two calls share a commit.

    Its methods are coroutines, as use cases await them (`JournalAccess`), and never wait for a loop.
    """

    def __init__(self, writer: sqlite3.Connection, reader: sqlite3.Connection, busy_seconds: float) -> None:
        self._writer = writer
        self._reader = reader
        self._busy_seconds = busy_seconds
        self._batches = Batches()

    @classmethod
    async def open(
        cls, path: str, create: bool, *, busy_seconds: float = opening.BUSY_SECONDS
    ) -> DirectJournal:
        """Raises as `connection.Journal.open`."""
        place = opening.find(path, create=create)
        known = migrate.load()
        reader = opening.open_reader(place, known, busy_seconds)
        try:
            writer = opening.open_writer(place, known, busy_seconds, time.time_ns())
        except BaseException:
            reader.close()
            raise
        return cls(writer, reader, busy_seconds)

    async def write(
        self, work: Callable[[sqlite3.Connection], T], *, durable: bool = True, patient: bool = False
    ) -> T:
        """As `connection.Journal.write`; nobody else's call is there to be waited for (``patient``)."""
        deadline = time.monotonic() + self._busy_seconds
        while True:
            try:
                (result,) = self._batches.run(self._writer, [work], durable)
                break
            except Exception as error:  # nothing was written
                if not is_busy(error):
                    raise translate(error, Phase.RUN) from error
                if time.monotonic() >= deadline:
                    raise busy(Phase.RUN) from error
        if isinstance(result, Failed):
            raise result.typed()
        answer: T = result
        return answer

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """As `connection.Journal.read`."""
        try:
            return in_snapshot(self._reader, work)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise translate(error, Phase.READ) from error

    def write_back(self) -> None:
        """Write what was committed into the file itself, so that `close` has nothing left to write.

        For a moment in which nobody waits for this process.  Where it cannot be done, the -wal file has it.
        """
        with suppress(sqlite3.Error):
            self._writer.execute(opening.SQL_CHECKPOINT)

    async def close(self) -> None:
        """The writer last: the last connection to go checkpoints and removes the -wal file."""
        self._reader.close()
        self._writer.close()
