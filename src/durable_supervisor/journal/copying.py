"""A copy of a journal, and what makes it the journal of a directory of its own.

The copy says of itself that it is one, and up to which run: whatever may still live of those runs
belongs to the original.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import NamedTuple

from ..model.errors import Phase
from . import files, listing, meta, migrate
from .errors import translate
from .reader import JournalReader
from .rows import RunRow, run_row

SQL_TRIGGER = "SELECT sql FROM sqlite_schema WHERE type = 'trigger' AND name = 'meta_directory_id_fixed'"
SQL_DROP_TRIGGER = "DROP TRIGGER meta_directory_id_fixed"
SQL_KEPT = "SELECT * FROM runs WHERE collected_ns IS NULL AND serial > ? ORDER BY serial LIMIT ?"
SQL_ALL = "SELECT * FROM runs WHERE serial > ? ORDER BY serial LIMIT ?"  # of a schema without collecting
SQL_COUNT = "SELECT count(*) FROM runs"
SQL_COUNT_KEPT = "SELECT count(*) FROM runs WHERE collected_ns IS NULL"
SQL_COUNT_COLLECTED = "SELECT count(*) FROM runs WHERE collected_ns IS NOT NULL"
SQL_FORBID_RETRIES = """
UPDATE runs SET stop_requested = 1
WHERE state = 'not_started' AND retryable = 1 AND stop_requested = 0 AND serial <= ?
"""


class CopyMark(NamedTuple):
    """``through``: the serial of the last run that was copied; ``at_ns``: when, Unix nanoseconds."""

    original: str  # the directory id that it was copied from
    at_ns: int
    through: int

    def encode(self) -> str:
        return json.dumps({"original": self.original, "at_ns": self.at_ns, "through": self.through})

    @classmethod
    def decode(cls, text: str) -> CopyMark:
        """Raises ValueError."""
        try:
            form = json.loads(text)
            return cls(str(form["original"]), int(form["at_ns"]), int(form["through"]))
        except (KeyError, TypeError) as problem:
            raise ValueError("not the mark of a copy") from problem


def copy_to(reader: JournalReader, path: str) -> None:
    """A new journal at ``path`` with all that the reader sees now; whoever writes meanwhile is not held up.

    In one step: from a snapshot that others cannot change, so it is of one moment, and never begun again.
    Raises SupervisorError ``STATE_DIR_REFUSED``, ``NO_SPACE``, ``BUSY``, ``JOURNAL_CORRUPT``.
    """
    files.create(path)
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as target:
            reader.read(lambda conn: conn.backup(target))
    except sqlite3.Error as error:
        raise translate(error, Phase.READ) from error


def become_copy(conn: sqlite3.Connection, directory_id: str, mark: CopyMark) -> None:
    """Give the journal another directory's id: nobody takes a copy for the original, nor its logs."""
    guard = conn.execute(SQL_TRIGGER).fetchone()[0]
    conn.execute(SQL_DROP_TRIGGER)
    meta.put(conn, meta.DIRECTORY_ID, directory_id)
    conn.execute(guard)
    meta.put(conn, meta.COPIED, mark.encode())


def copy_mark(conn: sqlite3.Connection) -> CopyMark | None:
    """None in a journal that is no copy.  Raises ValueError for a mark of another form."""
    text = meta.get(conn, meta.COPIED)
    return None if text is None else CopyMark.decode(text)


def remember_copy(conn: sqlite3.Connection, mark: CopyMark) -> None:
    """For a journal that was made anew: it still is a copy's."""
    meta.ensure(conn, meta.COPIED, mark.encode())


def forbid_retries(conn: sqlite3.Connection, through: int) -> int:
    """No refused request that was copied is tried again, as if its owner had stopped it; answers how many.

    The original may have tried it since.
    """
    return conn.execute(SQL_FORBID_RETRIES, (through,)).rowcount


def knows_collected(conn: sqlite3.Connection) -> bool:
    """Is its schema one in which runs can be collected?  A journal that is only read is not migrated."""
    return migrate.schema_version(conn) >= listing.KNOWS_COLLECTED


def kept_runs(conn: sqlite3.Connection, after_serial: int, limit: int) -> list[RunRow]:
    """Runs with a greater serial that are not collected, oldest first."""
    query = SQL_KEPT if knows_collected(conn) else SQL_ALL
    return [run_row(row) for row in conn.execute(query, (after_serial, limit))]


def counts(conn: sqlite3.Connection) -> tuple[int, int]:
    """How many runs are kept, and how many collected."""
    if not knows_collected(conn):
        return int(conn.execute(SQL_COUNT).fetchone()[0]), 0
    kept: int = conn.execute(SQL_COUNT_KEPT).fetchone()[0]
    collected: int = conn.execute(SQL_COUNT_COLLECTED).fetchone()[0]
    return kept, collected
