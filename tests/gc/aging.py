"""Runs that ended long ago, without waiting for it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

HOUR = 3600.0


def age(state_dir: Path, seconds: float = HOUR, run_id: str | None = None) -> None:
    """Let one run, or all, have ended so much earlier, as their journal has it."""
    with sqlite3.connect(state_dir / "journal.db", timeout=20) as conn:
        conn.execute(
            "UPDATE attempts SET ended_ns = ended_ns - ? WHERE ? IS NULL"
            " OR serial = (SELECT serial FROM runs WHERE run_id = ?)",
            (int(seconds * 1e9), run_id, run_id),
        )
    conn.close()


def files(state_dir: Path) -> list[str]:
    """Every file of any run."""
    runs = state_dir / "runs"
    return sorted(
        str(path.relative_to(runs)) for path in runs.rglob("*") if path.is_file() and path.parent != runs
    )
