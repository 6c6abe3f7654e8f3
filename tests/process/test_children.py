"""An application that opens supervisors again and again: workers outlive them, and none stays a zombie."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from durable_supervisor import Command, Supervisor
from durable_supervisor.process.identity import read_stat
from durable_supervisor.process.tree import children_of
from tests.support import eventually, eventually_async

OPENED = 6


def dead() -> set[int]:
    """Children of ours that nobody has reaped."""
    stats = [read_stat(pid) for pid in children_of(os.getpid())]
    return {stat.pid for stat in stats if stat is not None and stat.dead}


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A child of the application's own, which has ended."""
    child = subprocess.Popen(["true"])
    eventually(lambda: child.pid in dead())
    yield child
    child.wait()


async def test_those_who_outlive_their_supervisor_are_reaped(
    state_dir: Path, bystander: subprocess.Popen[bytes]
) -> None:
    before = dead()
    for _ in range(OPENED):
        async with Supervisor.open(state_dir) as sup:
            await sup.start(Command(argv=["sleep", "0.2"]))

    async def all_have_ended() -> bool:
        async with Supervisor.open(state_dir) as sup:
            await sup.reconcile()
            return all(view.outcome is not None for view in (await sup.list()).runs)

    await eventually_async(all_have_ended)
    await eventually_async(lambda: bool(dead() - before))
    left = dead() - before
    async with Supervisor.open(state_dir) as sup:
        await sup.start(Command(argv=["true"]))
    assert not dead() & left
    assert bystander.pid in dead()
