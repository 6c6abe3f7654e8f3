"""The writer at the end of its process, or of its loop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from durable_supervisor.journal import meta
from durable_supervisor.journal.connection import Journal
from durable_supervisor.journal.reader import JournalReader

UNCLOSED = """
import asyncio, sys
from durable_supervisor.journal.connection import Journal
from durable_supervisor.journal import meta
async def main():
    journal = await Journal.open(sys.argv[1])
    await journal.write(lambda conn: meta.put(conn, "kept", "yes"))
    globals()["kept"] = journal
    {then}
asyncio.run(main())
"""


@pytest.mark.parametrize(
    "then",
    [
        "pass",
        "raise SystemExit(0)",
        "import time; asyncio.create_task(journal.write(lambda c: time.sleep(60)))",
    ],
)
def test_an_unclosed_journal_does_not_hang_the_interpreter(tmp_path: Path, then: str) -> None:
    path = tmp_path / "journal.db"
    code = UNCLOSED.replace("{then}", then)
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        timeout=20,
        env=dict(os.environ, PYTHONPATH="src"),
        check=False,
    )
    assert done.returncode == 0
    with JournalReader.open(path) as reader:
        assert reader.read(lambda conn: meta.get(conn, "kept")) == "yes"


async def test_what_was_committed_survives_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    code = UNCLOSED.replace("{then}", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    done = subprocess.run(  # noqa: ASYNC221  # nothing else runs in this loop
        [sys.executable, "-c", code, str(path)], env=dict(os.environ, PYTHONPATH="src"), check=False
    )
    assert done.returncode == -signal.SIGKILL
    with JournalReader.open(path) as reader:
        assert reader.read(lambda conn: meta.get(conn, "kept")) == "yes"
    os.unlink(f"{path}-shm")  # as after a copy or a reboot: the index is rebuilt from the -wal file
    with JournalReader.open(path) as reader:
        assert reader.read(lambda conn: meta.get(conn, "kept")) == "yes"
    async with await Journal.open(path) as journal:
        assert await journal.read(lambda conn: meta.get(conn, "kept")) == "yes"


def test_a_loop_that_is_closed_without_us_hears_of_no_commit_and_nobody_else_does(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys, threading\n"
        "from durable_supervisor.journal.connection import Journal\n"
        "begun, go = threading.Event(), threading.Event()\n"
        "async def main():\n"
        "    journal = await Journal.open(sys.argv[1])\n"
        "    asyncio.ensure_future(journal.write(lambda conn: (begun.set(), go.wait())))\n"
        "    await asyncio.to_thread(begun.wait)\n"
        "    return journal._writer._thread\n"
        "thread = asyncio.run(main())\n"
        "go.set()\n"
        "thread.join(0.5)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "journal.db")],
        env=dict(os.environ, PYTHONPATH="src"),
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""


def test_a_refused_opening_leaves_no_noise_behind() -> None:
    """The thread tells the loop what came of it, which may be closed by then."""
    code = (
        "import asyncio, functools, sqlite3\n"
        "from durable_supervisor.journal.thread import connect\n"
        "nowhere = functools.partial(sqlite3.connect, '/nowhere/at/all.db')\n"
        "for _ in range(50):\n"
        "    try:\n"
        "        asyncio.run(connect(nowhere))\n"
        "    except Exception as error:\n"
        "        assert 'unable to open' in str(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=dict(os.environ, PYTHONPATH="src"),
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
