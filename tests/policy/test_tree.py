"""The tree in a group of its own: nobody leaves it, one write ends it, the kernel says when it is empty."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from durable_supervisor import Grant, Policy
from durable_supervisor.model.enforcement import SUBREAPER
from durable_supervisor.process.signals import signal_process
from durable_supervisor.sandbox.report import CGROUP_KILL, CGROUP_V1
from durable_supervisor.sandbox.resources import cgroups
from tests.contract.runs import Marker, appear, gone
from tests.policy.confined import Confined
from tests.policy.conftest import Hostile
from tests.policy.resources import MIB, groups_of, held_by, needs_group
from tests.support import eventually, eventually_async, running

pytestmark = pytest.mark.asyncio

LIMITS = {"max_memory_bytes": 256 * MIB, "max_processes": 50, "max_cpus": 1}
DAEMON = "(setsid sh -c 'trap \"\" TERM; sleep {0} & wait; sleep {0}' </dev/null >/dev/null 2>&1 &)"


async def directory_of(confined: Confined) -> str:
    """The directory id: groups carry it."""
    from durable_supervisor.journal import meta

    return str(await confined.runs.sup.journal.read(meta.directory_id))


# Moves the shell up out of each of its groups, and removes those.
LEAVE = """
for group in $(find /sys/fs/cgroup -type d -name "dsup-*.$DURABLE_SUPERVISOR_RUN_ID.*"); do
    echo $$ >"$group/../cgroup.procs" && rmdir "$group" && echo left
done
"""


async def test_a_program_that_leaves_its_groups_and_removes_them_is_ended_and_accounted_for(
    confined: Confined, marker: Marker
) -> None:
    """Limits alone leave it its privileges: what was reported as partial goes, and nothing else."""
    needs_group("memory")
    argv = ["sh", "-c", f"{LEAVE}{DAEMON.format(marker)}; sleep 1.2; exit 3"]
    ended = await confined(argv, None, **LIMITS, max_cpu_seconds=1, grace=0.1)
    assert "left" in ended.lines, ended.stderr
    assert (ended.outcome, ended.exit_code) == ("exited", 3)
    assert ended.receipt["cleanup_confirmed"]
    assert ended.enforcement["memory"]["applied"] == "partial"
    gone(marker)


async def test_a_run_without_a_plan_has_no_group(confined: Confined) -> None:
    run = await confined.start(["sleep", "60"])
    view = await confined.runs.sup.inspect(run.id)
    assert groups_of(await directory_of(confined)) == []
    assert view.program is not None
    await confined.runs.sup.stop(run.id, grace=0)
    assert (await confined.ended(run)).enforcement["tree"]["mechanism"] == SUBREAPER


async def test_the_whole_tree_is_in_the_groups_and_they_are_gone_with_it(
    confined: Confined, marker: Marker
) -> None:
    needs_group("tree")
    run = await confined.start(["sh", "-c", f"{DAEMON.format(marker)}; sleep {marker}"], Policy(), **LIMITS)
    appear(marker, 2)
    directory = await directory_of(confined)
    groups = groups_of(directory)
    assert groups
    assert all(run.id in group for group in groups)
    for group in groups:
        # Some are just being forked, or leave once they have.
        eventually(lambda group=group: all_inside(marker, group), message=group)  # type: ignore[misc]
    await confined.runs.sup.stop(run.id, grace=0.2)
    ended = await confined.ended(run)
    gone(marker)
    assert groups_of(directory) == []
    assert ended.enforcement["tree"] == {
        "requested": True, "applied": "full", "mechanism": CGROUP_KILL, "reason": None,
    }  # fmt: skip


def all_inside(marker: Marker, group: str) -> bool:
    alive = {str(pid) for pid in marker.alive()}
    return alive <= set(Path(group, "cgroup.procs").read_text().split())


async def test_frozen_processes_are_ended_too(confined: Confined, marker: Marker) -> None:
    needs_group("tree")
    run = await confined.start(["sh", "-c", f"sleep {marker} & sleep {marker}"], Policy())
    appear(marker, 2)
    own, _ = cgroups.find()
    assert own is not None
    parent = cgroups.v2_parent(own)
    (group,) = [one for one in groups_of(await directory_of(confined)) if one.startswith(parent)]
    Path(group, "cgroup.freeze").write_text("1")
    await confined.runs.sup.stop(run.id, grace=0.1)
    ended = await confined.ended(run)
    assert ended.outcome == "cancelled"
    gone(marker)


async def test_nobody_leaves_a_group_or_widens_it(confined: Confined, hostile: Hostile) -> None:
    for limit in ("memory", "processes", "cpus"):
        needs_group(limit)
    known = " ".join(f"{place} {place}/dsup-*$DURABLE_SUPERVISOR_RUN_ID*" for place in cgroups.places())
    ended = await confined(["sh", "-c", f"exec {hostile('groups')} {known}"], Policy(), **LIMITS)
    assert ended.outcome == "exited", ended.stderr
    attempts = [line for line in ended.lines if not line.startswith("in ")]
    assert len(attempts) > 10
    assert [line for line in attempts if line.endswith("done")] == []
    held = [line for line in ended.lines if line.startswith("in ") and f".{ended.view.run_id}." in line]
    kinds = {held_by(limit) for limit in ("tree", "memory", "processes", "cpus")}
    assert len(held) == (4 if CGROUP_V1 in kinds else 1), "memory, pids and cpu beside version 2"
    for axis in ("memory", "processes", "cpu"):
        assert ended.enforcement[axis]["applied"] == "full"


async def test_a_grant_of_the_groups_does_not_let_it_leave_either(
    confined: Confined, hostile: Hostile
) -> None:
    needs_group("memory")
    policy = Policy(filesystem=[Grant("/", "all")])
    known = " ".join(f"{place} {place}/dsup-*$DURABLE_SUPERVISOR_RUN_ID*" for place in cgroups.places())
    ended = await confined(["sh", "-c", f"exec {hostile('groups')} {known}"], policy, timeout=5, **LIMITS)
    if ended.enforcement["memory"]["applied"] == "full":
        assert [line for line in ended.lines if line.endswith("done")] == []
    else:
        assert ended.enforcement["memory"]["reason"]


async def test_a_program_that_never_starts_leaves_no_group(confined: Confined, tmp_path: Path) -> None:
    needs_group("tree")
    script = tmp_path / "script"
    script.write_text("#!/nonexistent/interpreter\n")
    script.chmod(0o755)
    ended = await confined([str(script)], Policy(), **LIMITS)
    assert ended.view.reason == "ENOENT"
    assert groups_of(await directory_of(confined)) == []


async def test_groups_of_a_killed_worker_are_swept_once_they_are_empty(
    confined: Confined, marker: Marker
) -> None:
    needs_group("tree")
    run = await confined.start(["sleep", str(marker)], Policy(), **LIMITS)
    appear(marker, 1)
    directory = await directory_of(confined)
    worker = await confined.runs.worker(run.id)
    signal_process(worker, signal.SIGKILL)

    async def state() -> bool:
        await confined.runs.sup.reconcile()
        return (await confined.runs.sup.inspect(run.id)).state.value == "quarantined"

    await eventually_async(state)
    assert groups_of(directory) != [], "somebody lives in them"
    marker.kill()

    async def swept() -> bool:
        await confined.runs.sup.reconcile()
        return groups_of(directory) == []

    await eventually_async(swept)


async def test_the_kill_of_a_resolve_ends_all_of_a_group(confined: Confined, marker: Marker) -> None:
    """The leader's end would leave a daemon that no worker is there to find."""
    needs_group("tree")
    run = await confined.start(["sh", "-c", f"{DAEMON.format(marker)}; sleep {marker}"], Policy(), **LIMITS)
    appear(marker, 2)
    worker = await confined.runs.worker(run.id)
    signal_process(worker, signal.SIGKILL)
    eventually(lambda: not running(worker.pid))

    async def quarantined() -> bool:
        await confined.runs.sup.reconcile()
        return (await confined.runs.sup.inspect(run.id)).state.value == "quarantined"

    await eventually_async(quarantined)
    await confined.runs.sup.resolve(run.id, "kill")
    eventually(lambda: marker.alive() == [])

    async def swept() -> bool:
        await confined.runs.sup.reconcile()
        return groups_of(await directory_of(confined)) == []

    await eventually_async(swept)
