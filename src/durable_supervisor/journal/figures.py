"""Figures of the journal, each read from an index that holds only the rows it counts."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from . import feed, meta

# Named, and their conditions repeated, or the planner would walk all runs (as in `listing`).
SQL_JUDGED = """
SELECT state, count(*) FROM runs INDEXED BY runs_by_state
WHERE state IN ('queued', 'starting', 'running', 'stopping', 'quarantined') AND collected_ns IS NULL
GROUP BY state
"""
SQL_UNRESOLVED = """
SELECT count(*) FROM runs INDEXED BY runs_unresolved WHERE state = 'unknown' AND resolution IS NULL
"""


@dataclass(frozen=True, slots=True)
class Figures:
    """``by_state``: open, quarantined and (not yet resolved) unknown runs; what is settled costs nothing."""

    by_state: dict[str, int]
    feed_head: int
    runs_ever: int


def read_figures(conn: sqlite3.Connection) -> Figures:
    """Its cost grows with the open runs, not with all."""
    by_state = {str(state): int(count) for state, count in conn.execute(SQL_JUDGED)}
    by_state["unknown"] = conn.execute(SQL_UNRESOLVED).fetchone()[0]
    return Figures(by_state, feed.head(conn), meta.next_serial(conn) - 1)
