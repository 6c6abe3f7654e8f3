"""What the journal knows about its own directory."""

from __future__ import annotations

import sqlite3

DIRECTORY_ID = "directory_id"  # write-once, by trigger; every log header carries it too
SWEPT = "swept"  # how often a log without a row was found at an opening
COPIED = "copied"  # only the journal of a copy has it: `copying.CopyMark`
COLLECTED_LOG = "collected_log"  # the last line of collected.log that this journal knows
KEY_ID = "key_id"  # names the key file whose digests the rows hold

SQL_GET = "SELECT value FROM meta WHERE key = ?"
SQL_ADD = "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO NOTHING"
SQL_SET = "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
SQL_COUNT = """INSERT INTO meta (key, value) VALUES (?, '1')
ON CONFLICT (key) DO UPDATE SET value = CAST(value + 1 AS TEXT)"""
SQL_LAST_SERIAL = "SELECT max(serial) FROM runs"


def get(conn: sqlite3.Connection, key: str) -> str | None:
    """The value of a key, or None."""
    row = conn.execute(SQL_GET, (key,)).fetchone()
    return None if row is None else str(row[0])


def ensure(conn: sqlite3.Connection, key: str, value: str) -> str:
    """Set a key that has no value yet; returns the value that holds."""
    conn.execute(SQL_ADD, (key, value))
    return get(conn, key) or value


def put(conn: sqlite3.Connection, key: str, value: str) -> None:
    """Set a key.  Raises sqlite3.IntegrityError for another ``directory_id``."""
    conn.execute(SQL_SET, (key, value))


def directory_id(conn: sqlite3.Connection) -> str | None:
    """None in a journal that was never given one."""
    return get(conn, DIRECTORY_ID)


def key_id(conn: sqlite3.Connection) -> str | None:
    """None in a journal that was never given one."""
    return get(conn, KEY_ID)


def overwrite_unannounced(conn: sqlite3.Connection) -> None:
    """Write something new, so that a commit whose process did not live to announce it cannot come back.

    Killed behind the write of its last frame to the -wal file, and before that of the -shm file, it
    leaves a transaction that nobody sees as long as others have the -shm file open, and that is whole for who
    opens the journal after all of them.  The next write takes the place of its frames: of a value that is
    there already SQLite would write none.
    """
    conn.execute(SQL_COUNT, (SWEPT,))


def next_serial(conn: sqlite3.Connection) -> int:
    """One above every serial in the journal.  The owner counts on from it in memory."""
    return (conn.execute(SQL_LAST_SERIAL).fetchone()[0] or 0) + 1


def adopt(conn: sqlite3.Connection, directory_id: str, key_id: str) -> None:
    """Name the directory and the key, unless they have names already."""
    ensure(conn, DIRECTORY_ID, directory_id)
    ensure(conn, KEY_ID, key_id)
