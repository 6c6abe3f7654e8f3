"""Every change of a run's state, of all runs, in one order."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from ..model.states import RunState

if TYPE_CHECKING:
    from ..model.answers import FeedEntry

ADMIT = "admit"  # the feed's word for a new row; every other word is a Trigger
RECOVER = "recover"  # a row rebuilt from its log

SQL_APPEND = "INSERT INTO feed (time_ns, serial, attempt, state, trigger, reason) VALUES (?, ?, ?, ?, ?, ?)"
SQL_PAGE = """
SELECT feed.position, feed.time_ns, runs.run_id, feed.attempt, feed.state, feed.trigger, feed.reason
FROM feed CROSS JOIN runs ON runs.serial = feed.serial
WHERE feed.position > ? AND (? IS NULL OR runs.owner = ?) ORDER BY feed.position LIMIT ?
"""
SQL_HEAD = "SELECT max(position) FROM feed"


def append(
    conn: sqlite3.Connection,
    serial: int,
    attempt: int,
    state: RunState,
    trigger: str,
    reason: str | None,
    now_ns: int,
) -> None:
    """Add an entry, in the transaction of the change it tells of."""
    conn.execute(SQL_APPEND, (now_ns, serial, attempt, str(state), trigger, reason))


def feed(
    conn: sqlite3.Connection, after_position: int = 0, limit: int = 100, owner: str | None = None
) -> list[FeedEntry]:
    """At most ``limit`` entries with ``position > after_position``, in order; of one owner's runs, or all."""
    from ..model.answers import FeedEntry  # a start, which adds to the feed, reads none of it

    return [
        FeedEntry(position, time_ns, run_id, attempt, RunState(state), trigger, reason)
        for position, time_ns, run_id, attempt, state, trigger, reason in conn.execute(
            SQL_PAGE, (after_position, owner, owner, limit)
        )
    ]


def head(conn: sqlite3.Connection) -> int:
    """The newest position, 0 for an empty feed."""
    return conn.execute(SQL_HEAD).fetchone()[0] or 0
