"""A commit whose process was killed before it told others of it: nobody sees it, until all have closed."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from functools import partial
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


_SHM_HEADER = 136  # both copies of the index' header, and what checkpoints have done (walformat.html)


def killed_after(path: Path, *works: Callable[[sqlite3.Connection], object]) -> None:
    """Each in a transaction of a process that is gone right after it, without a word to SQLite."""
    pid = os.fork()
    if pid == 0:
        conn = sqlite3.connect(path, isolation_level=None)
        conn.row_factory = sqlite3.Row
        for work in works:
            conn.execute("BEGIN IMMEDIATE")
            work(conn)
            conn.execute("COMMIT")
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


def test_a_commit_that_was_not_announced_never_comes_back_however_often_there_was_one(tmp_path: Path) -> None:
    path, shm = tmp_path / "journal.db", tmp_path / "journal.db-shm"
    conn = migrated(path)
    conn.execute("PRAGMA journal_mode = WAL")
    conn.close()
    for serial in (1, 2, 3):
        reader = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        assert meta.next_serial(reader) == 1
        before = shm.read_bytes()[:_SHM_HEADER]
        killed_after(path, partial(runs.admit, intent=intent(serial)))
        with open(shm, "r+b") as file:  # as if it had been killed before this was written
            file.write(before)
        assert meta.next_serial(reader) == 1
        killed_after(path, meta.overwrite_unannounced)
        reader.close()  # who comes now finds nobody, and reads the -wal file from its beginning
