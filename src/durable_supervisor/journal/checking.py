"""Whether a journal holds together.  Reads only."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from . import migrate
from .runs import KNOWS_CURRENT_ATTEMPT

_MOST = 20  # problems of one kind that are told

SQL_INTEGRITY = "PRAGMA integrity_check(20)"
SQL_MIGRATIONS = "SELECT name, sha256 FROM schema_migrations ORDER BY version"
# With what a guard reads, and nothing ever changes.
SQL_SCHEMA = """
SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL
UNION ALL SELECT 'state_moves', old || ' ' || new FROM state_moves
"""
# What no constraint holds, since a run is written in one transaction: no row without its run.
SQL_ORPHANS = {
    "attempts": "SELECT count(*) FROM attempts WHERE serial NOT IN (SELECT serial FROM runs)",
    "run_labels": "SELECT count(*) FROM run_labels WHERE serial NOT IN (SELECT serial FROM runs)",
    "feed": "SELECT count(*) FROM feed WHERE serial NOT IN (SELECT serial FROM runs)",
    "resolutions": "SELECT count(*) FROM resolutions WHERE serial NOT IN (SELECT serial FROM runs)",
}
# The last one is the run's own row.
SQL_WITHOUT_ATTEMPT = """
SELECT run_id FROM runs
WHERE attempt > 1 AND attempt - 1 <> (SELECT count(*) FROM attempts WHERE attempts.serial = runs.serial)
ORDER BY serial LIMIT ?
"""
# Of a schema in which every attempt had one.
SQL_WITHOUT_OWN_ATTEMPT = """
SELECT run_id FROM runs LEFT JOIN attempts USING (serial, attempt)
WHERE attempts.serial IS NULL ORDER BY serial LIMIT ?
"""


def integrity(conn: sqlite3.Connection) -> list[str]:
    """What SQLite itself finds wrong with the file, page by page."""
    told = [str(row[0]) for row in conn.execute(SQL_INTEGRITY)]
    return [] if told == ["ok"] else told


def orphans(conn: sqlite3.Connection) -> dict[str, int]:
    """How many rows of each table belong to no run."""
    counts = {table: int(conn.execute(query).fetchone()[0]) for table, query in SQL_ORPHANS.items()}
    return {table: count for table, count in counts.items() if count}


def without_attempt(conn: sqlite3.Connection) -> list[str]:
    """Runs of which an attempt is missing."""
    current = migrate.schema_version(conn) >= KNOWS_CURRENT_ATTEMPT
    query = SQL_WITHOUT_ATTEMPT if current else SQL_WITHOUT_OWN_ATTEMPT
    return [str(row[0]) for row in conn.execute(query, (_MOST,))]


def other_schema(conn: sqlite3.Connection) -> list[str]:
    """Tables, indexes and guards that are not what the migrations make: also of those that are missing."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as sound:
        migrate.migrate(sound, migrate.load()[: migrate.schema_version(conn)], 0)
        made = {tuple(row) for row in sound.execute(SQL_SCHEMA)}
    found = {tuple(row) for row in conn.execute(SQL_SCHEMA)}
    return sorted({str(name) for name, _ in made ^ found})


def other_migrations(conn: sqlite3.Connection) -> list[str]:
    """Migrations that were not what this version has under the name."""
    known = {migration.name: migration.sha256 for migration in migrate.load()}
    return [str(name) for name, digest in conn.execute(SQL_MIGRATIONS) if known.get(name) != digest]
