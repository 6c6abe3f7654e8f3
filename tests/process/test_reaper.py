"""What a test leaves running is found through the run logs and ended, and nobody else is."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from durable_supervisor import Command, Supervisor
from durable_supervisor.process import tree
from tests.support import eventually_async, reap_state_dir, running


@pytest.fixture
def bystander() -> Iterator[int]:
    """The pid of a process that no log names."""
    process = subprocess.Popen(["sleep", "1000"])
    yield process.pid
    process.kill()
    process.wait()


async def test_workers_programs_and_their_children_are_ended(state_dir: Path, bystander: int) -> None:
    script = "setsid sleep 1000 & sleep 1000 & trap '' TERM; wait"
    async with Supervisor.open(state_dir) as supervisor:
        run = await supervisor.start(Command(argv=["sh", "-c", script]), request_id="left-behind")
        seen = await supervisor.inspect(run.id)
    assert seen.worker is not None
    worker = int(str(seen.worker["pid"]))
    await eventually_async(lambda: len(tree.descendants(worker)) == 3)
    family = {worker, *(stat.pid for stat in tree.descendants(worker))}
    assert set(reap_state_dir(state_dir)) == family
    await eventually_async(lambda: not any(running(pid) for pid in family))
    assert running(bystander)
    assert reap_state_dir(state_dir) == []


def test_a_directory_without_runs_is_no_trouble(tmp_path: Path) -> None:
    assert reap_state_dir(tmp_path) == []
    assert reap_state_dir(tmp_path / "missing") == []
