"""The tree of a program: what is found below a process, and what is not."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from durable_supervisor.process import tree
from tests.support import eventually


@pytest.fixture
def shell() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sh", "-c", "sleep 3131 & wait"]) as process:
        eventually(lambda: tree.children_of(process.pid))
        yield process
        for pid in [*tree.children_of(process.pid), process.pid]:
            os.kill(pid, 9)


def test_parents_come_before_their_children(shell: subprocess.Popen[bytes]) -> None:
    [child] = tree.children_of(shell.pid)
    found = [one.pid for one in tree.descendants(os.getpid())]
    assert found.index(shell.pid) < found.index(child)


def test_a_pid_that_is_another_process_by_now_is_left_out(
    shell: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child may be reaped, and its pid be taken by a stranger, before it is looked at."""
    listed = tree.children_of
    stranger = os.getppid()

    def outdated(pid: int) -> list[int]:
        return [*listed(pid), stranger] if pid == shell.pid else listed(pid)

    monkeypatch.setattr(tree, "children_of", outdated)
    found = [one.pid for one in tree.descendants(shell.pid)]
    assert found == listed(shell.pid)
