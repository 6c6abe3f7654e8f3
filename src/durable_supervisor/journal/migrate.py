"""Bring a journal to this code's schema, one file and one transaction at a time."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator

from ..model.errors import ErrorCode, Phase, SupervisorError
from ..model.named_tuple import NamedTuple
from .errors import corrupt

_WORD = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")

SQL_SCHEMA_TABLE = """
CREATE TABLE IF NOT EXISTS schema_migrations (
    version INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    applied_ns INTEGER NOT NULL
) STRICT
"""
SQL_HAS_SCHEMA = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'schema_migrations'"
SQL_HAS_ANYTHING = "SELECT 1 FROM sqlite_master LIMIT 1"
SQL_VERSION = "SELECT coalesce(max(version), 0) FROM schema_migrations"
SQL_RECORD = "INSERT INTO schema_migrations (version, name, sha256, applied_ns) VALUES (?, ?, ?, ?)"


class Migration(NamedTuple):
    """One ``NNNN_name.sql``; versions count from 1 without gaps."""

    version: int
    name: str
    text: str

    @property
    def sha256(self) -> str:
        """Hex digest of the file, kept with its row: says later which text was applied."""
        import hashlib  # loads OpenSSL, for hardly any opening

        return hashlib.sha256(self.text.encode()).hexdigest()

    def statements(self) -> Iterator[str]:
        """The file's statements; each begins on its own line (``executescript`` would commit)."""
        buffer = ""
        for line in self.text.splitlines(keepends=True):
            buffer += line
            if line.rstrip().endswith(";") and sqlite3.complete_statement(buffer):
                yield buffer
                buffer = ""
        if any(line.strip() and not line.lstrip().startswith("--") for line in buffer.splitlines()):
            raise ValueError(f"{self.name}: the last statement has no end")


def directory() -> str:
    """Where the ``.sql`` files are: inside the installed package, or at the top of the source tree."""
    package = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    for place in (package, os.path.dirname(os.path.dirname(package))):
        if os.path.isdir(found := os.path.join(place, "migrations")):
            return found
    raise SupervisorError(
        ErrorCode.INTERNAL,
        "the migrations are missing from this installation",
        phase=Phase.OPEN,
        hint="install the package again",
    )


def load(place: str | os.PathLike[str] | None = None) -> list[Migration]:
    """Every migration, oldest first.  Raises ValueError for a misnamed file or a gap."""
    found, folder = [], os.fspath(place or directory())
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".sql"):
            continue
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            found.append(Migration(version_of(name), name, file.read()))
    for expected, migration in enumerate(found, 1):
        if migration.version != expected:
            raise ValueError(f"{migration.name}: expected version {expected}")
    return found


def version_of(name: str) -> int:
    """Of a file named by four digits, then words, then ``.sql``.  Raises ValueError for another name."""
    # No regular expression: to compile one takes every start longer than to read these files.
    number, *words = name.removesuffix(".sql").split("_")
    regular = len(number) == 4 and number.isascii() and number.isdigit() and name.endswith(".sql")
    if not regular or not words or not all(word and _WORD.issuperset(word) for word in words):
        raise ValueError(f"{name}: a migration is named NNNN_lower_case.sql")
    return int(number)


def schema_version(conn: sqlite3.Connection) -> int:
    """The journal's version; 0 for an empty file.  Reads only.

    Raises SupervisorError ``JOURNAL_CORRUPT`` for another program's database.
    """
    if conn.execute(SQL_HAS_SCHEMA).fetchone() is None:
        if conn.execute(SQL_HAS_ANYTHING).fetchone() is not None:
            raise corrupt("journal.db is a SQLite database, but not a journal", Phase.OPEN)
        return 0
    version: int = conn.execute(SQL_VERSION).fetchone()[0]
    return version


def check_version(conn: sqlite3.Connection, known: int) -> int:
    """`schema_version`, or ``JOURNAL_NEWER`` where this code knows fewer.  Reads only."""
    version = schema_version(conn)
    if version > known:
        raise SupervisorError(
            ErrorCode.JOURNAL_NEWER,
            f"the journal has schema {version}; this version knows {known}",
            phase=Phase.OPEN,
            hint="upgrade durable-supervisor, or use the state directory with the version that wrote it",
            details={"journal_schema": version, "known_schema": known},
        )
    return version


def migrate(conn: sqlite3.Connection, migrations: list[Migration], now_ns: int) -> int:
    """Apply what is missing, each file in one transaction with its row.  Returns the version.

    ``conn`` is in autocommit mode.  A failed file leaves the journal at the version before it.
    """
    version = check_version(conn, len(migrations))
    for migration in migrations[version:]:
        conn.execute("BEGIN IMMEDIATE")
        try:
            conn.execute(SQL_SCHEMA_TABLE)
            # Seen again under the lock: another opener may have been faster.
            if schema_version(conn) < migration.version:
                for statement in migration.statements():
                    conn.execute(statement)
                conn.execute(SQL_RECORD, (migration.version, migration.name, migration.sha256, now_ns))
            conn.execute("COMMIT")
        except BaseException:
            if conn.in_transaction:
                conn.execute("ROLLBACK")
            raise
    return schema_version(conn)
