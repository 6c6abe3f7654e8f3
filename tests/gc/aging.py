"""Runs that ended long ago, without waiting for it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from durable_supervisor.process.locks import LockState, probe_lock
from tests.support import eventually

HOUR = 3600.0


def age(state_dir: Path, seconds: float = HOUR, run_id: str | None = None) -> None:
    """Let one run, or all that are over, have ended so much earlier, as their journal has it.

    And let their workers be gone: they hold their logs for a moment longer than they are waited for.
    """
    with sqlite3.connect(state_dir / "journal.db", timeout=20) as conn:
        over = conn.execute(
            "SELECT serial, run_id FROM runs WHERE state IN ('finished', 'not_started')"
            " AND (? IS NULL OR run_id = ?)",
            (run_id, run_id),
        ).fetchall()
        guard = conn.execute(
            "SELECT sql FROM sqlite_schema WHERE name = 'runs_settled_write_once'"
        ).fetchone()[0]
        conn.execute("BEGIN IMMEDIATE")
        conn.execute("DROP TRIGGER runs_settled_write_once")
        conn.executemany(
            "UPDATE runs SET ended_ns = ended_ns - ? WHERE serial = ? AND collected_ns IS NULL",
            [(int(seconds * 1e9), serial) for serial, _ in over],
        )
        conn.execute(guard)
    conn.close()
    for _, one in over:
        for log in (state_dir / "runs").glob(f"*/{one}.a*.log"):
            eventually(lambda log=log: probe_lock(str(log)) is not LockState.HELD)  # type: ignore[misc]


def files(state_dir: Path) -> list[str]:
    """Every file of any run."""
    runs = state_dir / "runs"
    return sorted(
        str(path.relative_to(runs)) for path in runs.rglob("*") if path.is_file() and path.parent != runs
    )
