"""bubblewrap stands outside of what it makes: the program can neither steer it nor get out by way of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from durable_supervisor import Grant, Policy
from durable_supervisor.sandbox.files import bubblewrap, landlock
from tests.policy.confined import Confined, done
from tests.policy.conftest import Hostile
from tests.policy.test_outside import OWN, SIGNALS, victim


@pytest.fixture(autouse=True)
def able() -> None:
    if bubblewrap.probe() is None:
        pytest.skip("there is no bubblewrap that works here")


def policy(*grants: Grant) -> Policy:
    return Policy(filesystem=grants, files_backend="bubblewrap")


async def test_a_library_that_a_program_put_there_is_not_loaded_by_it(
    confined: Confined, tmp_path: Path
) -> None:
    """It would be executed outside, with everything that the user may do."""
    (tmp_path / "libcap.so.2").write_text("loaded by bwrap, this would end it")
    env = {"LD_LIBRARY_PATH": str(tmp_path)}
    argv = ["sh", "-c", "echo $LD_LIBRARY_PATH"]
    ended = await confined(argv, policy(Grant(tmp_path, "write")), cwd=str(tmp_path), env=env)
    assert (ended.lines, ended.stderr) == ([str(tmp_path)], b"")


async def test_the_parent_of_the_program_leads_nowhere(confined: Confined) -> None:
    """Its root is the machine's, so whoever could trace it had all files."""
    look = "for name in root/etc cwd/. environ mem fd/0; do head -c 1 /proc/$PPID/$name 2>&1; done"
    ended = await confined(["sh", "-c", look], policy(Grant("/proc", "read")), cwd="/usr")
    assert len(ended.lines) == 5
    assert all(line.endswith(": Permission denied") for line in ended.lines), ended.lines


async def test_nobody_gets_out(confined: Confined, hostile: Hostile) -> None:
    """Not by way of the user's other processes, nor of their queues."""
    with victim() as somebody:
        argv = [hostile("outside"), *somebody]
        ended = await confined(argv, policy(Grant("/proc", "read")), cwd="/usr")
    succeeded = done(ended.lines)
    if landlock.probe() < landlock.SCOPES_SINCE:
        succeeded -= SIGNALS  # a kernel that cannot hold them
    assert succeeded == OWN, ended.lines


async def test_nobody_sees_the_environment_among_the_arguments(confined: Confined) -> None:
    script = 'grep -c "$WHAT" /proc/$PPID/cmdline; echo "$WHAT"'
    env = {"WHAT": "a value\nof two lines"}
    ended = await confined(["sh", "-c", script], policy(Grant("/proc", "read")), cwd="/usr", env=env)
    assert ended.lines == ["0", "a value", "of two lines"]


async def test_nothing_is_left_open(confined: Confined) -> None:
    """A directory outside would lead to all the others."""
    grants = policy(Grant("/proc", "read"), Grant("/var", "read"))
    ended = await confined(["sh", "-c", "for fd in /proc/$$/fd/*; do readlink $fd; done"], grants, cwd="/usr")
    assert len(ended.lines) == 3, ended.lines
