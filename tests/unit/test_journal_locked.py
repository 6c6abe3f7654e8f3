"""The writer beside another process that holds the journal's lock."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from durable_supervisor.journal import runs
from durable_supervisor.journal.connection import Journal
from durable_supervisor.model.errors import ErrorCode, SupervisorError
from tests.unit.journal_helpers import intent
from tests.unit.test_journal_writer import admit, count, put

HOLDER = """
import sqlite3, sys, time
conn = sqlite3.connect(sys.argv[1], isolation_level=None)
conn.execute("BEGIN IMMEDIATE")
print("held", flush=True)
time.sleep(float(sys.argv[2]))
conn.execute("ROLLBACK")
conn.close()
"""


@contextmanager
def held_by_another(path: str, seconds: float) -> Iterator[subprocess.Popen[bytes]]:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, path, str(seconds)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        yield holder
    finally:
        holder.kill()
        holder.wait()
        assert holder.stdout is not None
        holder.stdout.close()


async def test_a_write_lock_held_for_six_seconds_only_delays(tmp_path: Path) -> None:
    async with await Journal.open(tmp_path / "journal.db") as journal:
        with held_by_another(journal.path, 6.0) as holder:
            writes = [asyncio.create_task(journal.write(admit(serial))) for serial in range(1, 9)]
            assert await journal.read(lambda conn: runs.get(conn, intent(1).run_id)) is None
            assert holder.poll() is None, "readers go on"
            assert not any(one.done() for one in writes)
            assert await asyncio.gather(*writes) == ["new"] * 8


async def test_a_lock_held_longer_gives_busy_and_loses_nothing(tmp_path: Path) -> None:
    async with await Journal.open(tmp_path / "journal.db", busy_seconds=0.5) as journal:
        with held_by_another(journal.path, 60):
            with pytest.raises(SupervisorError) as busy:
                await journal.write(put("a"))
            assert (busy.value.code, busy.value.retryable) == (ErrorCode.BUSY, True)
            assert await count(journal) == 0
        await journal.write(put("a"))
        assert await count(journal) == 1


async def test_opening_beside_a_held_lock(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    await (await Journal.open(path)).close()
    with held_by_another(str(path), 60):
        journal = await Journal.open(path, busy_seconds=0.5)  # nothing to migrate: no lock needed
        assert await count(journal) == 0
        await journal.close()
