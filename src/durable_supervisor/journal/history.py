"""Everything the journal holds about one run."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from ..model.answers import FeedEntry, feed_entry
from ..model.events import iso_time
from ..model.schema import schema_name
from ..model.states import RunState
from . import runs
from .rows import AttemptRow, Document, RunRow, decode

# By a scan of the feed: it has no index by run, since nothing that is quick asks for one.
SQL_CHANGES = """
SELECT position, time_ns, attempt, state, trigger, reason FROM feed WHERE serial = ? ORDER BY position
"""
SQL_RESOLUTIONS = "SELECT time_ns, document FROM resolutions WHERE serial = ? ORDER BY id"


@dataclass(frozen=True, slots=True)
class History:
    """A run's row with its attempts, its changes of state and the words of operators on it."""

    row: RunRow
    attempts: list[AttemptRow]
    changes: list[FeedEntry]
    resolutions: list[tuple[int, Document]]

    def to_dict(self) -> dict[str, object]:
        """The journal-rows document."""
        return {
            "schema": schema_name("journal-rows"),
            "run": {**self.row._asdict(), "state": self.row.state.value},
            "attempts": [attempt._asdict() for attempt in self.attempts],
            "feed": [feed_entry(change) for change in self.changes],
            "resolutions": [
                {"time": iso_time(time_ns), "document": document} for time_ns, document in self.resolutions
            ],
        }


def of_run(conn: sqlite3.Connection, row: RunRow) -> History:
    """The history behind ``row``; a run that only its log knows has none but the row."""
    known = runs.get(conn, row.run_id)
    if known is None:
        return History(row, [], [], [])
    changes = [
        FeedEntry(position, time_ns, row.run_id, attempt, RunState(state), trigger, reason)
        for position, time_ns, attempt, state, trigger, reason in conn.execute(SQL_CHANGES, (known.serial,))
    ]
    words = conn.execute(SQL_RESOLUTIONS, (known.serial,))
    return History(
        known,
        runs.attempts(conn, known.serial),
        changes,
        [(time_ns, decode(document)) for time_ns, document in words],
    )
