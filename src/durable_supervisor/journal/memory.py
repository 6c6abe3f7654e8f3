"""A journal that exists only in memory: what run logs tell while there is no journal to read."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

from . import migrate
from .collecting import rebuild_collected
from .reader import JournalReader
from .recover import RecoveredRun
from .tombstones import Tombstone


def rebuilt_in_memory(
    logs: Iterable[RecoveredRun], stones: Sequence[Tombstone], now_ns: int
) -> JournalReader:
    """A reader over rows rebuilt from logs and tombstones.  Nothing is written to any disk."""
    conn = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    conn.row_factory = sqlite3.Row
    migrate.migrate(conn, migrate.load(), now_ns)
    rebuild_collected(conn, logs, stones, None, now_ns)
    return JournalReader(":memory:", conn, 0)
