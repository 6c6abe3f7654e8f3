"""With any policy a program has no privileges, and gets none by whatever it executes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from durable_supervisor import Grant, Policy
from durable_supervisor.sandbox.files import bubblewrap
from tests.policy.confined import Confined, attempts
from tests.policy.conftest import Hostile

pytestmark = pytest.mark.asyncio

CAPABILITIES = ("CapInh", "CapPrm", "CapEff", "CapAmb")
PROC = Grant("/proc", "read")
POLICIES = {
    "nothing else": Policy(),
    "files": Policy(filesystem=[PROC]),
    "network": Policy(network="none"),
    "bubblewrap": Policy(filesystem=[PROC], files_backend="bubblewrap"),
}


def status_of(lines: list[str]) -> dict[str, str]:
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


@pytest.mark.parametrize("name", POLICIES)
async def test_no_capability_is_left_nor_comes_back(confined: Confined, name: str) -> None:
    """Asked after two more programs were executed: uid 0 gets none back by that either."""
    if name == "bubblewrap" and bubblewrap.probe() is None:
        pytest.skip("there is no bubblewrap that works here")
    ended = await confined(
        ["sh", "-c", "exec sh -c 'exec cat /proc/self/status'"], POLICIES[name], cwd="/usr"
    )
    assert ended.exit_code == 0, ended.stderr
    status = status_of(ended.lines)
    assert {status[which] for which in CAPABILITIES} == {"0" * 16}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert status["Uid"].split() == [str(os.geteuid())] * 4
    if os.geteuid() == 0:
        assert status["CapBnd"] == "0" * 16
    privileges = ended.enforcement["privileges"]
    assert (privileges["applied"], privileges["mechanism"]) == ("full", "no_new_privs")


async def test_root_without_capabilities_is_an_ordinary_user(confined: Confined, hostile: Hostile) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    found = attempts((await confined([hostile("root")], Policy())).lines)
    assert "done" not in found.values()
    assert len(found) == 9


async def test_without_a_policy_nothing_of_it_is_touched(confined: Confined) -> None:
    ours = status_of(Path("/proc/self/status").read_text().splitlines())
    for files in (None, 64):
        ended = await confined(["cat", "/proc/self/status"], max_open_files=files)
        status = status_of(ended.lines)
        for which in (*CAPABILITIES, "CapBnd", "NoNewPrivs", "Seccomp"):
            assert status[which] == ours[which]


async def test_what_came_of_each_axis_is_an_event_before_the_release(confined: Confined) -> None:
    run = await confined.start(["true"], Policy(network="none"))
    ended = await confined.ended(run)
    events = {event.kind: event for event in await confined.runs.events(run)}
    told = events["program.confined"]
    assert events["program.spawned"].seq < told.seq < events["program.released"].seq
    assert told.detail["enforcement"] == ended.enforcement
