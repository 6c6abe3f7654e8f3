"""Processor time and share: of the tree together, whoever uses it."""

from __future__ import annotations

import pytest

from durable_supervisor import Policy
from tests.policy.confined import Confined, Ended
from tests.policy.conftest import Hostile
from tests.policy.resources import held_by, needs_group, without_group

pytestmark = pytest.mark.asyncio


def used(ended: Ended) -> float:
    rusage = ended.receipt["rusage"]
    return float(rusage["user_seconds"] + rusage["system_seconds"])


async def test_processor_time_of_several_processes_counts_together(
    confined: Confined, hostile: Hostile
) -> None:
    needs_group("cpu_seconds")
    ended = await confined([hostile("burn"), "4", "60"], Policy(), max_cpu_seconds=0.6, grace=0, timeout=25)
    assert ended.outcome == "timed_out"
    assert ended.receipt["stop"]["reason"] == "cpu_time"
    assert 0.55 <= used(ended) < 2, "no process had used that much by itself"
    assert ended.enforcement["cpu"]["applied"] == "full"
    assert ended.enforcement["cpu"]["mechanism"] == held_by("cpu_seconds")


async def test_one_process_is_stopped_by_its_worker_and_not_by_the_kernel(
    confined: Confined, hostile: Hostile
) -> None:
    """Whose SIGXCPU would come at a whole second, just as we look, and not say why."""
    needs_group("cpu_seconds")
    ended = await confined([hostile("burn"), "1", "60"], Policy(), max_cpu_seconds=1, grace=0, timeout=25)
    assert ended.outcome == "timed_out"
    assert used(ended) >= 0.95


async def test_waiting_uses_no_processor_time(confined: Confined) -> None:
    ended = await confined(["sleep", "0.5"], Policy(), max_cpu_seconds=0.2)
    assert ended.outcome == "exited"


async def test_a_share_of_a_processor_is_not_exceeded(confined: Confined, hostile: Hostile) -> None:
    needs_group("cpus")
    ended = await confined([hostile("burn"), "3", "1.5"], Policy(), max_cpus=0.2, timeout=25)
    assert ended.outcome == "exited"
    assert used(ended) / ended.receipt["duration"] < 0.35
    assert ended.enforcement["cpu"]["applied"] == "full"
    assert ended.enforcement["cpu"]["mechanism"] == held_by("cpus")


async def test_without_a_group_each_process_has_the_time_for_itself(
    confined: Confined, hostile: Hostile
) -> None:
    without_group("cpu_seconds")
    ended = await confined([hostile("burn"), "1", "60"], Policy(), max_cpu_seconds=1, timeout=25)
    assert ended.outcome == "signaled"
    assert ended.view.outcome is not None
    assert ended.view.outcome.signal == 24, "SIGXCPU"
    cpu = ended.enforcement["cpu"]
    assert (cpu["applied"], cpu["mechanism"]) == ("partial", "rlimit")


async def test_without_a_group_there_is_no_share(confined: Confined) -> None:
    without_group("cpus")
    ended = await confined(["true"], max_cpus=0.5)
    assert ended.enforcement["cpu"]["applied"] == "none"
    assert "share" in ended.enforcement["cpu"]["reason"]
