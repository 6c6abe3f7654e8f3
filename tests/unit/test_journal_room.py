"""Room at the end of the -wal file."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from durable_supervisor.journal import meta, runs
from durable_supervisor.journal.connection import Journal
from durable_supervisor.journal.room import CHUNK, ENOUGH, WalRoom
from tests.support import eventually_async
from tests.unit.journal_helpers import intent


async def test_it_is_made_by_idle_work(tmp_path: Path) -> None:
    """A commit that finds room does not wait until the file system has written down how long the file is."""
    async with await Journal.open(tmp_path / "state" / "journal.db") as journal:
        wal = f"{journal.path}-wal"
        await journal.write(partial(runs.admit, intent=intent(1)))
        assert os.path.getsize(wal) < CHUNK

        def is_made() -> bool:
            journal.run_idle_work()
            return os.path.getsize(wal) >= ENOUGH

        await eventually_async(is_made)
        length = os.path.getsize(wal)
        for serial in range(2, 6):
            await journal.write(partial(runs.admit, intent=intent(serial)))
        journal.run_idle_work()
        # Whoever opens it while its index is there, and whoever has to read the file from its beginning.
        assert await journal.read(meta.next_serial) == 6
        copy = shutil.copy(journal.path, f"{journal.path}.copy")
        shutil.copy(wal, f"{copy}-wal")
        assert os.path.getsize(wal) == length, "neither by a commit nor by idle work again"
    with closing(sqlite3.connect(copy)) as found:
        assert found.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert meta.next_serial(found) == 6


def test_more_is_made_where_sqlite_needed_more(tmp_path: Path) -> None:
    """Where a reader holds on to what is to be written back, the file does not begin anew."""
    wal = tmp_path / "journal.db-wal"
    wal.touch()
    room = WalRoom(str(tmp_path / "journal.db"))
    while room.is_short():
        room.make()
    assert wal.stat().st_size == ENOUGH
    with wal.open("ab") as file:
        file.write(b"x" * 4096)
    assert room.is_short()
    room.begins_anew()
    assert not room.is_short()


@pytest.mark.parametrize("where", ["nowhere", "a link"])
def test_none_is_no_error(tmp_path: Path, where: str) -> None:
    wal = tmp_path / "journal.db-wal"
    if where == "a link":
        (tmp_path / "other").touch()
        wal.symlink_to(tmp_path / "other")
    WalRoom(str(tmp_path / "journal.db")).make()
    assert not wal.exists() or wal.stat().st_size == 0
