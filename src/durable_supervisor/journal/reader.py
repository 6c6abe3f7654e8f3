"""Reading the journal without owning it: beside an owner, or with none alive."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable
from typing import TypeVar

from ..model.errors import Phase, SupervisorError
from . import files, migrate
from .errors import busy, is_half_made, lacks_room, missing, translate

T = TypeVar("T")

BUSY_SECONDS = 5.0


def in_snapshot(conn: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    """Run ``work`` in one read transaction, short so that it never keeps the -wal file from shrinking."""
    conn.execute("BEGIN")
    try:
        return work(conn)
    finally:
        if conn.in_transaction:
            conn.execute("ROLLBACK")


class JournalReader:
    """A read-only, synchronous journal; usable from any thread, one read at a time."""

    def __init__(
        self, path: str, conn: sqlite3.Connection, inode: int, at_rest: tuple[int, ...] | None = None
    ) -> None:
        self.path = path
        self._conn = conn
        self._inode = inode
        self._at_rest = at_rest  # what a file that is read as unchanging must still be afterwards
        self._lock = threading.Lock()

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, busy_seconds: float = BUSY_SECONDS) -> JournalReader:
        """Raises SupervisorError ``JOURNAL_MISSING`` (none, or not yet set up), ``JOURNAL_NEWER``,
        ``JOURNAL_CORRUPT``, ``STATE_DIR_REFUSED``, ``BUSY``."""
        place = files.absolute(path)
        if not files.check(place):
            raise missing(Phase.READ)
        try:
            return cls._open(place, files.read_only_uri(place), busy_seconds)
        except SupervisorError as error:
            # A full disk has no room for the -shm file that even reading needs.  Without an
            # owner nothing changes the file; should one come meanwhile, `read` finds out.
            if error.__cause__ and is_half_made(error.__cause__):
                raise missing(Phase.READ) from error
            at_rest = files.at_rest(place) if error.__cause__ and lacks_room(error.__cause__) else None
            if at_rest is None:
                raise
        return cls._open(place, files.unchanging_uri(place), busy_seconds, at_rest)

    @classmethod
    def open_at_rest(cls, path: str | os.PathLike[str]) -> JournalReader:
        """As `open`, of a journal that nobody uses: not even a -shm file is made beside it.

        Should it change all the same, `read` raises ``BUSY``.
        """
        place = files.absolute(path)
        at_rest = files.at_rest(place) if files.check(place) else None
        if at_rest is None:
            return cls.open(path)
        return cls._open(place, files.unchanging_uri(place), BUSY_SECONDS, at_rest)

    @classmethod
    def _open(
        cls, place: str, uri: str, busy_seconds: float, at_rest: tuple[int, ...] | None = None
    ) -> JournalReader:
        try:
            inode = os.stat(place).st_ino
            conn = sqlite3.connect(
                uri, uri=True, isolation_level=None, timeout=busy_seconds, check_same_thread=False
            )
        except FileNotFoundError:
            raise missing(Phase.READ) from None
        except sqlite3.Error as error:
            raise translate(error, Phase.READ) from error
        conn.row_factory = sqlite3.Row
        reader = cls(place, conn, inode, at_rest)
        try:
            known = len(migrate.load())
            if reader.read(lambda conn: migrate.check_version(conn, known)) == 0:
                raise missing(Phase.READ)
        except BaseException:
            reader.close()
            raise
        return reader

    def __enter__(self) -> JournalReader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run ``work(conn)`` in one snapshot.  Raises what it raises; SQLite's errors as typed ones."""
        with self._lock:
            try:
                answer = in_snapshot(self._conn, work)
            except (sqlite3.Error, UnicodeDecodeError) as error:
                if self._changed():
                    raise busy(Phase.READ) from error
                raise translate(error, Phase.READ) from error
            if self._changed():
                raise busy(Phase.READ)
            return answer

    def replaced(self) -> bool:
        """Is another file, or none, at the path now, or may it change unseen?  Then open a new reader."""
        if self._at_rest is not None:
            return True
        try:
            return os.stat(self.path).st_ino != self._inode
        except FileNotFoundError:
            return True

    def _changed(self) -> bool:
        """Was a file that is read as unchanging changed?  Then what was read of it proves nothing."""
        return self._at_rest is not None and files.at_rest(self.path) != self._at_rest

    def close(self) -> None:
        """Idempotent."""
        with self._lock:
            self._conn.close()
