"""What the journal's tests share: an intent with sensible values, and a migrated file."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from durable_supervisor.journal import migrate
from durable_supervisor.journal.rows import Intent
from durable_supervisor.model.digest import FIELDS

DIGESTS = {name: f"digest-{name}" for name in FIELDS}


def intent(serial: int, **changes: Any) -> Intent:
    """The intent of run number ``serial``: request ``req-N``, run id ``run0…N``."""
    values: dict[str, Any] = {
        "serial": serial,
        "run_id": f"run{serial:013d}",
        "shard": f"{serial // 1024:04x}",
        "owner": "local",
        "request_id": f"req-{serial}",
        "argv": ["echo", "hello"],
        "cwd": "/",
        "limits": {"timeout": None, "grace": 10.0},
        "completion": "leader",
        "digests": DIGESTS,
        "key_id": "key-1",
        "boot_id": "boot-1",
        "now_ns": 1000 + serial,
    }
    return Intent(**(values | changes))


def migrated(path: Path | str) -> sqlite3.Connection:
    """A plain connection (autocommit, rows by name) to a file with the whole schema."""
    conn = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    conn.row_factory = sqlite3.Row
    conn.execute("PRAGMA recursive_triggers = ON")
    conn.execute("PRAGMA synchronous = OFF")  # no test of these pulls a plug
    migrate.migrate(conn, migrate.load(), now_ns=1)
    return conn
