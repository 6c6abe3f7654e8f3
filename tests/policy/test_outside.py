"""Under any policy, nobody gets out by way of a process or a namespace of somebody else, or a new one."""

from __future__ import annotations

import ctypes
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from durable_supervisor import Policy
from durable_supervisor.model.terminal import Terminal
from durable_supervisor.sandbox.files import landlock
from tests.policy.confined import Confined, attempts, done
from tests.policy.conftest import Hostile

SIGNALS = {"signal", "pidfd_signal"}
OWN = {"own_child", "own_limit", "own_priority"}

_libc = ctypes.CDLL(None, use_errno=True)
_IPC_CREAT, _IPC_RMID = 0o1000, 0  # msgget(2), msgctl(2)


@contextmanager
def victim() -> Iterator[list[str]]:
    """Somebody of the same user whom nobody confines: pid, a descriptor, an address, the key of a queue."""
    key = secrets.randbits(30) + 1
    queue = _libc.msgget(key, _IPC_CREAT | 0o600)
    assert queue >= 0
    with subprocess.Popen([sys.executable, "-c", "print(flush=True); input()"], stdin=-1, stdout=-1) as one:
        assert one.stdout is not None
        one.stdout.readline()
        maps = Path(f"/proc/{one.pid}/maps").read_text()
        stack = re.search(r"^(\w+)-\w+ rw-p .*\[stack\]$", maps, re.MULTILINE)
        assert stack is not None
        try:
            yield [str(one.pid), "0", f"0x{stack[1]}", str(key)]
        finally:
            _libc.msgctl(queue, _IPC_RMID, None)
            one.kill()


@pytest.mark.parametrize("how", [[], ["daemon"]], ids=["plainly", "as a daemon"])
@pytest.mark.parametrize(
    "policy",
    [Policy(), Policy(network="none"), Policy(network="loopback")],
    ids=lambda policy: policy.network,
)
async def test_nobody_gets_out(confined: Confined, hostile: Hostile, policy: Policy, how: list[str]) -> None:
    with victim() as somebody:
        ended = await confined([hostile("outside"), *how, *somebody], policy)
    assert ended.exit_code == 0, ended.stderr
    succeeded = done(ended.lines)
    if landlock.probe() < landlock.SCOPES_SINCE:
        succeeded -= SIGNALS  # a kernel that cannot hold them
    if policy.network == "host":
        succeeded -= {"queue"}  # goes with a namespace of its own, which this needs none of
    assert succeeded == OWN, ended.lines
    results = attempts(ended.lines)
    assert {results[name] for name in ("clone_user", "unshare_user", "typing", "typing_high_bits")} == {
        "EPERM"
    }
    assert {results[name] for name in ("clone3_user", "newer_call")} == {"ENOSYS"}


async def test_without_a_policy_the_victim_is_reached(confined: Confined, hostile: Hostile) -> None:
    """The hostile program is good at it (where other rules of the machine do not forbid it, as Yama's)."""
    with victim() as somebody:
        ended = await confined([hostile("outside"), "alone", *somebody])
    assert done(ended.lines) >= {"limit", "priority", "scheduler", "queue", *SIGNALS, *OWN}


async def test_nothing_is_typed_into_a_terminal(confined: Confined, hostile: Hostile) -> None:
    """A terminal changes nothing: not even into its own, which it may share with somebody."""
    with victim() as somebody:
        command = [hostile("outside"), *somebody]
        ended = await confined(command, Policy(network="none"), pty=Terminal())
    results = attempts(ended.lines)
    assert (results["typing"], results["typing_high_bits"]) == ("EPERM", "EPERM")
    assert ended.enforcement["network"]["applied"] == "full"


async def test_what_a_user_namespace_gave_is_gone(confined: Confined) -> None:
    """Ids are what they were; there is no capability, whatever made the namespaces."""
    script = "id -u; id -g; grep -E '^(Cap(Eff|Prm|Inh|Amb)|NoNewPrivs)' /proc/self/status"
    ended = await confined(["sh", "-c", script], Policy(network="none"))
    uid, gid, *rest = ended.lines
    assert (int(uid), int(gid)) == (os.getuid(), os.getgid())
    values = dict(line.split(":\t") for line in rest)
    assert values.pop("NoNewPrivs") == "1"
    assert {int(value, 16) for value in values.values()} == {0}
    assert len(values) == 4


async def test_files_that_it_makes_are_its_users(confined: Confined, tmp_path: Path) -> None:
    await confined(["touch", str(tmp_path / "made")], Policy(network="none"))
    made = (tmp_path / "made").stat()
    assert (made.st_uid, made.st_gid) == (os.getuid(), os.getgid())
