"""A fork bomb: bounded, ended, and nothing left of it."""

from __future__ import annotations

import pytest

from durable_supervisor import Policy
from durable_supervisor.model.events import Kind
from durable_supervisor.process import tree
from tests.policy.confined import Confined
from tests.policy.conftest import Hostile
from tests.policy.resources import held_by, needs_group, without_group
from tests.support import eventually_async

pytestmark = pytest.mark.asyncio

MOST = 40


async def test_a_fork_bomb_is_bounded_and_ended_with_nothing_left(
    confined: Confined, hostile: Hostile
) -> None:
    needs_group("processes")
    run = await confined.start([hostile("forks")], Policy(), max_processes=MOST, timeout=60, grace=0.2)
    worker = await confined.runs.worker(run.id)
    await eventually_async(lambda: living_at_once(worker.pid) >= MOST // 2, message="no bomb")
    counts = [living_at_once(worker.pid) for _ in range(10)]
    assert max(counts) <= MOST, "bounded"
    await confined.runs.sup.stop(run.id, grace=0.2)
    ended = await confined.ended(run)
    assert ended.outcome == "cancelled"
    assert ended.receipt["survivors"] == []
    assert ended.receipt["cleanup_confirmed"]
    processes = ended.enforcement["processes"]
    assert (processes["applied"], processes["mechanism"]) == ("full", held_by("processes"))
    assert _carrying(run.id) == []


async def test_the_deadline_of_a_fork_bomb_holds(confined: Confined, hostile: Hostile) -> None:
    needs_group("processes")
    ended = await confined([hostile("forks")], Policy(), max_processes=MOST, timeout=0.5, grace=0.1)
    assert ended.outcome == "timed_out"
    assert ended.receipt["survivors"] == []
    assert _carrying(ended.view.run_id) == []


async def test_the_bound_is_on_the_tree_and_not_on_the_user(confined: Confined) -> None:
    """Other processes of the user, and threads of the worker, take nothing of it."""
    needs_group("processes")
    ended = await confined(["sh", "-c", "sleep 0.01 & sleep 0.01 & wait; echo fine"], max_processes=3)
    assert (ended.outcome, ended.lines) == ("exited", ["fine"])


async def test_a_program_that_meets_the_bound_is_told_by_fork(confined: Confined) -> None:
    needs_group("processes")
    ended = await confined(["sh", "-c", "true & wait; echo never"], Policy(), max_processes=1)
    assert ended.exit_code == 2
    assert b"ork" in ended.stderr
    assert ended.lines == []


async def test_without_a_group_the_users_processes_are_counted(confined: Confined) -> None:
    without_group("processes")
    run = await confined.start(["sh", "-c", "(true); echo never"], Policy(), max_processes=1)
    ended = await confined.ended(run)
    assert ended.exit_code != 0, ended.stdout
    processes = ended.enforcement["processes"]
    assert (processes["applied"], processes["mechanism"]) == ("partial", "rlimit")
    assert "user" in processes["reason"]
    assert Kind.PROGRAM_CONFINED in await confined.runs.kinds(run)


def living_at_once(pid: int) -> int:
    """Those below it that two looks have seen lived between them.  One look alone takes a while itself, and
    sees some who are gone, and their successors.
    """
    one, other = ({(stat.pid, stat.start_ticks) for stat in tree.descendants(pid)} for _ in range(2))
    return len(one & other)


def _carrying(run_id: str) -> list[int]:
    return [one.pid for one in tree.marked("DURABLE_SUPERVISOR_RUN_ID", run_id)]
