"""A journal that exists only in memory: what run logs tell while there is no journal to read."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from . import migrate
from .reader import JournalReader
from .recover import RecoveredRun, rebuild


def rebuilt_in_memory(logs: Iterable[RecoveredRun], now_ns: int) -> JournalReader:
    """A reader over rows rebuilt from logs.  Nothing is written to any disk."""
    conn = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    conn.row_factory = sqlite3.Row
    migrate.migrate(conn, migrate.load(), now_ns)
    rebuild(conn, logs, now_ns)
    return JournalReader(":memory:", conn, 0)
