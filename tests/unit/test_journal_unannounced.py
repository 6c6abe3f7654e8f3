"""A commit whose process was killed before it told others of it: nobody sees it, until all have closed."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

from durable_supervisor.journal import meta, runs
from tests.unit.journal_helpers import intent, migrated


def copied(source: Path, target: Path) -> None:
    """By another process: to open and close a database's files here would drop SQLite's locks (fcntl(2))."""
    command = ["dd", f"if={source}", f"of={target}", "conv=notrunc", "status=none"]
    subprocess.run(command, check=True)


def as_found_later(journal: Path, folder: Path) -> list[int]:
    """The serials that whoever opens the journal after all others finds: its -shm file is made anew."""
    folder.mkdir()
    for suffix in ("", "-wal"):
        shutil.copyfile(f"{journal}{suffix}", folder / f"journal.db{suffix}")
    with closing(sqlite3.connect(folder / "journal.db")) as later:
        return [serial for (serial,) in later.execute("SELECT serial FROM runs ORDER BY serial")]


def test_it_cannot_come_back_behind_a_sweep(tmp_path: Path) -> None:
    journal, shared = tmp_path / "journal.db", tmp_path / "journal.db-shm"
    with closing(migrated(journal)) as owner:
        owner.execute("PRAGMA journal_mode = WAL")
        for turn in range(3):
            runs.admit(owner, intent(2 * turn + 1))
            copied(shared, tmp_path / "before")
            with closing(sqlite3.connect(journal, isolation_level=None)) as killed:
                killed.row_factory = sqlite3.Row
                runs.admit(killed, intent(2 * turn + 2))
            copied(tmp_path / "before", shared)
            seen = [row["serial"] for row in owner.execute("SELECT serial FROM runs ORDER BY serial")]
            assert seen == [2 * number + 1 for number in range(turn + 1)]
            assert as_found_later(journal, tmp_path / f"back-{turn}") == [*seen, 2 * turn + 2], "the danger"
            meta.overwrite_unannounced(owner)
            assert as_found_later(journal, tmp_path / f"gone-{turn}") == seen
