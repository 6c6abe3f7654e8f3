"""A worker was killed between a receipt's write and its sync: who tells of it brings it to the disk first."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from durable_supervisor.process.signals import signal_ticks
from tests.crash.harness import QUICK, ROOT, Ledger, assert_nothing_left, end_all, logs
from tests.crash.test_matrix import stopped
from tests.crash.world import World
from tests.lab.disk import teller
from tests.lab.disk.faults import Action, Call, Faults, Role
from tests.lab.disk.replay import read_trace
from tests.support import eventually

CODE = 5
TOLD = {
    "waited": "finished",
    "inspected": ["finished", "logged", CODE],
    "listed": ["finished"],
    "ended": True,
}
WITHHELD = {
    "waited": "OUTCOME_UNKNOWN",
    "inspected": ["quarantined", "log_unsynced", None],
    "listed": ["quarantined"],
    "ended": False,
}


@dataclass
class Left:
    """A directory that nobody owns, with a run whose receipt was never synced."""

    state_dir: Path
    run: str
    faults: Faults

    @property
    def log(self) -> str:
        [log] = logs(self.state_dir)
        return str(log)

    def told(self, role: str) -> Any:
        """By a process of its own, with the shim under it."""
        env = {**os.environ, **self.faults.environment(Role.OWNER), "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
        words = [sys.executable, str(teller.__file__), str(self.state_dir), self.run, role]
        ran = subprocess.run(words, env=env, cwd=ROOT, stdout=subprocess.PIPE, check=True)
        return json.loads(ran.stdout)

    def fail(self, error: int) -> None:
        """No file of the run can be synced."""
        self.faults.arm(Action.FAIL, Role.OWNER, calls=[Call.SYNC], path="/runs/", error=error, times=-1)


@pytest.fixture
def left(tmp_path: Path) -> Iterator[Left]:
    state = tmp_path / "disk" / "state"
    state.mkdir(parents=True, mode=0o700)
    world = World(state, Ledger(tmp_path))
    faults = Faults(tmp_path, tmp_path / "disk", traced=True)
    with world.host("log.last_word=pause") as host:
        host.opened()
        run = host.start(world.ledger.program(world.request_id, QUICK, CODE))
        [worker] = eventually(lambda: stopped(state))
        host.kill()
        assert signal_ticks(*worker, signal.SIGKILL)
        assert_nothing_left(state)
    yield Left(state, run, faults)
    faults.close()
    end_all(state)


def test_a_reader_syncs_the_log_and_its_name_before_it_tells(left: Left) -> None:
    assert left.told("observer") == TOLD
    assert left.faults.trace is not None
    synced = [(step.call, step.path) for step in read_trace(left.faults.trace)]
    assert (Call.SYNC, left.log) in synced
    assert (Call.SYNC_DIR, os.path.dirname(left.log)) in synced


@pytest.mark.parametrize("error", [errno.EIO, errno.EROFS, errno.EINVAL])
def test_a_reader_that_cannot_tells_of_no_end(left: Left, error: int) -> None:
    left.fail(error)
    assert left.told("observer") == WITHHELD
    left.faults.disarm()
    assert left.told("observer") == TOLD


def test_an_owner_that_cannot_has_the_journal(left: Left) -> None:
    left.fail(errno.EIO)
    assert left.told("owner") == TOLD
    assert left.told("observer") == TOLD  # what the journal has settled
