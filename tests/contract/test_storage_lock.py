"""Another program holds the journal's write lock: calls wait or are BUSY, and nothing is lost or made up."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from durable_supervisor import Command, ErrorCode, RunState, SupervisorError
from tests.contract.hosts import check_error
from tests.contract.runs import Runs, open_runs
from tests.support import eventually_async

LOCKER = """
import sqlite3, sys, time
conn = sqlite3.connect(sys.argv[1], isolation_level=None)
conn.execute("BEGIN IMMEDIATE")
print("held", flush=True)
until = time.monotonic() + float(sys.argv[2])
sys.stdin.readline()
time.sleep(max(0.0, until - time.monotonic()))
conn.execute("ROLLBACK")
"""


class Locker:
    """Another program that holds the journal's write lock: for so long, and until it is told to let go."""

    def __init__(self, state_dir: Path, seconds: float) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", LOCKER, str(state_dir / "journal.db"), str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"held\n"

    def __enter__(self) -> Locker:
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.kill()
        self.process.communicate()

    def let_go(self) -> None:
        """Once its time is over."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    @property
    def held(self) -> bool:
        return self.process.poll() is None


async def test_a_lock_held_for_six_seconds_loses_nothing(tmp_path: Path, runs: Runs) -> None:
    """Calls wait for it; reading and running programs do not; no verdict comes from it."""
    ledger = tmp_path / "ledger"
    live = await runs.sh("echo ready; read line; exit 3", stdin="open")
    await runs.printed(live, b"ready\n")
    with Locker(runs.state_dir, 6) as locker:
        command = Command(argv=["sh", "-c", 'echo "$1" >> "$2"', "sh", "ran", str(ledger)])
        starts = [asyncio.ensure_future(runs.sup.start(command, request_id=f"r-{n % 2}")) for n in range(4)]
        assert (await runs.sup.inspect(live.id)).state is RunState.RUNNING
        assert len((await runs.sup.list()).runs) == 1
        await runs.sup.write_stdin(live.id, b"go on\n")
        final = await runs.wait(live)
        assert (final.state, final.outcome and final.outcome.code) == (RunState.FINISHED, 3)
        assert locker.held, "reading, controls and the end need no lock"
        assert not ledger.exists(), "nothing runs before its intent is committed"
        assert not any(one.done() for one in starts)
        locker.let_go()
        answers = await asyncio.gather(*starts)
        await eventually_async(lambda: not locker.held)
    assert len({one.id for one in answers}) == 2
    for one in answers:
        await runs.wait(one)
    assert ledger.read_text() == "ran\nran\n"
    await runs.sup.reconcile()
    page = await runs.sup.feed(limit=1000)
    assert [entry.state for entry in page if entry.run_id == live.id][-1] is RunState.FINISHED


async def test_a_lock_held_too_long_is_busy_and_the_id_is_not_spent(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs.sup._journal, "_busy_seconds", 0.5)
    command = Command(argv=["true"])
    with Locker(runs.state_dir, 60):
        with pytest.raises(SupervisorError) as caught:
            await runs.sup.start(command, request_id="one")
        check_error(caught.value, ErrorCode.BUSY)
        assert caught.value.retryable
        assert (await runs.sup.list()).runs == []
        assert list((runs.state_dir / "runs").rglob("*.log")) == [], "nothing half-written"
    run = await runs.sup.start(command, request_id="one")
    assert (run.admission, run.attempt) == ("new", 1)
    await runs.wait(run)


async def test_opening_waits_for_the_lock_too(state_dir: Path) -> None:
    async with open_runs(state_dir) as runs:
        run = await runs.sh("sleep 0.3; exit 4")
    with Locker(state_dir, 1.5) as locker:
        locker.let_go()
        async with open_runs(state_dir) as runs:
            final = await runs.wait(run)
    assert (final.state, final.outcome and final.outcome.code) == (RunState.FINISHED, 4)
