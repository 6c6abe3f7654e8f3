"""The owner's two connections: one that writes, one that reads.  All of this blocks."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from ..model.errors import ErrorCode, Phase, SupervisorError
from . import files, migrate
from .errors import is_busy, is_half_made, missing, translate

T = TypeVar("T")

# `checkpoints` fail, or never get their turn, only on a machine in trouble.  Then SQLite bounds the file.
SQL_LAST_RESORT = "PRAGMA wal_autocheckpoint = 4000"
# PASSIVE waits for no reader: what one still needs stays for the next time.
SQL_CHECKPOINT = "PRAGMA wal_checkpoint(PASSIVE)"

BUSY_SECONDS = 15.0  # how long a call waits for another process's write lock
OLDEST_SQLITE = (3, 37, 0)  # STRICT tables, RETURNING
# The busy timeout of one try, in seconds: short, so that between tries cancelled work can be dropped and
# what has arrived be taken in.
BUSY_TRY_SECONDS = 1.0
_PAUSE = 0.02  # seconds: switching to WAL answers "busy" without having waited


def find(path: str | os.PathLike[str], *, create: bool) -> str:
    """The absolute path of the journal, which is made where there is none.

    Raises SupervisorError ``JOURNAL_MISSING`` (no file and not ``create``), ``STATE_DIR_REFUSED``,
    ``UNSUPPORTED_PLATFORM``.
    """
    _check_sqlite()
    place = files.absolute(path)
    if not files.check(place):
        if not create:
            raise missing(Phase.OPEN)
        files.create(place)
    return place


def open_reader(place: str, migrations: list[migrate.Migration], busy_seconds: float) -> sqlite3.Connection:
    """To be had before `open_writer`: a journal of a newer version must not even be checkpointed.

    Raises ``JOURNAL_NEWER`` and ``JOURNAL_CORRUPT``, with nothing written, and ``BUSY``.
    """
    connection = _connect(files.read_only_uri(place), uri=True)
    try:
        _patiently(partial(_check, connection, len(migrations)), busy_seconds)
    except BaseException:
        connection.close()
        raise
    return connection


def open_writer(
    place: str, migrations: list[migrate.Migration], busy_seconds: float, now_ns: int
) -> sqlite3.Connection:
    """In WAL, with the schema of this version.  Raises as `open_reader`, and ``NO_SPACE``."""
    files.narrow(place)
    connection = _connect(place, uri=False)
    try:
        _patiently(partial(_configure, connection), busy_seconds)
        _patiently(partial(migrate.migrate, connection, migrations, now_ns), busy_seconds)
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(database: str, *, uri: bool) -> sqlite3.Connection:
    """In autocommit mode: every BEGIN is ours."""
    try:
        connection = sqlite3.connect(
            database, uri=uri, isolation_level=None, timeout=BUSY_TRY_SECONDS, cached_statements=256
        )
    except sqlite3.Error as error:
        raise translate(error, Phase.OPEN) from error
    connection.row_factory = sqlite3.Row
    return connection


def _patiently(work: Callable[[], T], seconds: float) -> T:
    """Again, as long as another process is in its way."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return work()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if not is_busy(error) or time.monotonic() >= deadline:
                raise translate(error, Phase.OPEN) from error
            time.sleep(_PAUSE)


def _check(connection: sqlite3.Connection, known: int) -> None:
    try:
        migrate.check_version(connection, known)
    except sqlite3.Error as error:
        if not is_half_made(error):  # that one is made whole by the writer
            raise


def _configure(conn: sqlite3.Connection) -> None:
    # EXTRA: the rollback file of the switch to WAL must not come back after a power loss.
    conn.execute("PRAGMA synchronous = EXTRA")
    conn.execute("PRAGMA recursive_triggers = ON")  # else INSERT OR REPLACE would go round the guards
    conn.execute("PRAGMA trusted_schema = OFF")
    mode = conn.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise SupervisorError(
            ErrorCode.STATE_DIR_REFUSED,
            "this file system cannot hold a SQLite write-ahead log",
            phase=Phase.OPEN,
            hint="choose a state directory on a local disk",
        )
    # For the migrations: what a power loss takes back of them is applied anew, and nothing that must last is
    # ever committed before them.
    conn.execute("PRAGMA synchronous = NORMAL")
    conn.execute(SQL_LAST_RESORT)
    conn.execute("PRAGMA journal_size_limit = 16777216")  # a burst leaves no giant -wal behind


def _check_sqlite() -> None:
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise SupervisorError(
            ErrorCode.UNSUPPORTED_PLATFORM,
            f"this Python has SQLite {sqlite3.sqlite_version}; 3.37 or newer is needed",
            phase=Phase.OPEN,
            hint="use a newer Python or operating system",
        )
