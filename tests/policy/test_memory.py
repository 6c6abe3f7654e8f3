"""A bound on memory holds for the whole tree, and the kernel's word on it is the outcome."""

from __future__ import annotations

import os
import sys

import pytest

from durable_supervisor import Policy
from durable_supervisor.sandbox.report import CGROUP_V1
from tests.contract.runs import Marker, gone
from tests.policy.confined import Confined
from tests.policy.conftest import Hostile
from tests.policy.resources import MIB, held_by, needs_group, without_group

pytestmark = pytest.mark.asyncio

LIMIT = 32 * MIB


@pytest.mark.parametrize("way", ["touch", "forks", "child", "shared", "memfd", "tmpfs", "spared"])
async def test_whoever_is_killed_for_want_of_memory_the_run_is_out_of_memory(
    confined: Confined, hostile: Hostile, way: str
) -> None:
    needs_group("memory")
    ended = await confined([hostile("memory"), way], Policy(), max_memory_bytes=LIMIT, timeout=60, grace=20)
    assert ended.outcome == "out_of_memory"
    assert ended.view.outcome is not None
    assert ended.view.outcome.signal == 9
    memory = ended.enforcement["memory"]
    assert memory["oom_kills"] >= 1
    assert (memory["applied"], memory["mechanism"]) == ("full", held_by("memory"))
    assert ended.receipt["cleanup_confirmed"]
    assert (ended.receipt["stop"] or {"grace": 0})["grace"] == 0


async def test_who_outlives_the_killed_one_is_ended_without_grace(
    confined: Confined, hostile: Hostile, marker: Marker
) -> None:
    needs_group("memory")
    script = f"trap '' TERM; sleep {marker} & {hostile('memory')} touch; echo still here; wait"
    ended = await confined(["sh", "-c", script], max_memory_bytes=LIMIT, grace=20)
    assert ended.outcome == "out_of_memory"
    if held_by("memory") == CGROUP_V1:  # version 2 kills the whole tree by itself
        assert ended.receipt["stop"]["reason"] == "out_of_memory"
        assert ended.receipt["stop"]["grace"] == 0
    gone(marker)


async def test_a_program_that_kills_itself_is_not_out_of_memory(confined: Confined) -> None:
    ended = await confined(["sh", "-c", "kill -9 $$"], max_memory_bytes=LIMIT)
    assert ended.outcome == "signaled"
    assert ended.enforcement["memory"].get("oom_kills", 0) == 0


async def test_one_that_stays_within_the_bound_is_left_alone(confined: Confined) -> None:
    ended = await confined(["sh", "-c", "echo fine"], Policy(), max_memory_bytes=256 * MIB)
    assert (ended.outcome, ended.lines) == ("exited", ["fine"])


async def test_without_a_group_each_process_is_bounded_by_itself(
    confined: Confined, hostile: Hostile
) -> None:
    without_group("memory")
    ended = await confined([hostile("memory"), "touch"], Policy(), max_memory_bytes=LIMIT)
    assert (ended.outcome, ended.exit_code) == ("exited", 5), "its mmap failed, and it said so"
    memory = ended.enforcement["memory"]
    assert (memory["applied"], memory["mechanism"]) == ("partial", "rlimit")
    assert "each process" in memory["reason"]


async def test_root_without_a_policy_could_leave_its_group_and_the_report_says_so(
    confined: Confined,
) -> None:
    needs_group("memory")
    ended = await confined(["true"], max_memory_bytes=256 * MIB)
    memory = ended.enforcement["memory"]
    assert (memory["applied"], memory["mechanism"]) == ("partial", held_by("memory")), os.geteuid()
    assert "leave" in memory["reason"]


# As much as its connections to itself take without anybody reading.
FLOOD = """
import socket
listener, held, ends = socket.create_server(("127.0.0.1", 0)), 0, []
for _ in range(50):
    end = socket.create_connection(listener.getsockname())
    end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
    end.setblocking(False)
    ends += [end, listener.accept()[0]]
    try:
        while True:
            held += end.send(bytes(65536))
    except BlockingIOError:
        pass
print(held)
"""


async def test_what_waits_in_sockets_counts(confined: Confined) -> None:
    needs_group("memory")
    ended = await confined(
        [sys.executable, "-c", FLOOD], Policy(network="loopback"), max_memory_bytes=2 * LIMIT
    )
    assert ended.enforcement["memory"]["applied"] == "full"
    assert ended.outcome == "out_of_memory" or int(ended.stdout) < LIMIT
