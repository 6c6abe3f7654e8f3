"""Where groups are found and made: from what the kernel says, not from where they usually are."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from durable_supervisor.sandbox import kernel
from durable_supervisor.sandbox.plan import Plan
from durable_supervisor.sandbox.resources import cgroups, run_cgroups
from durable_supervisor.supervisor.policy import probing
from durable_supervisor.supervisor.policy.probing import machine_facts
from tests.policy.carry_out import NotExecuted, carried_out
from tests.policy.conftest import Hostile
from tests.policy.resources import needs_group
from tests.support import eventually

_NOBODY = 65534
HYBRID = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 master:1 - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
MEMBER_OF_HYBRID = """\
9:name=systemd:/user
4:memory:/users/me
1:cpu,cpuacct:/
0::/user.slice/session-3.scope
"""
ONE_GROUP_ALONE = r"42 1 0:38 /docker/abc /my\040groups rw - cgroup2 cgroup2 rw,nsdelegate"


def test_each_controller_is_where_it_is_mounted() -> None:
    v2, v1 = cgroups.own_groups(HYBRID, MEMBER_OF_HYBRID)
    assert v2 == "/sys/fs/cgroup/unified/user.slice/session-3.scope"
    assert v1 == {
        "memory": "/sys/fs/cgroup/memory/users/me",
        "cpu": "/sys/fs/cgroup/cpu,cpuacct",
        "cpuacct": "/sys/fs/cgroup/cpu,cpuacct",
    }


@pytest.mark.parametrize(
    ("membership", "directory"),
    [
        ("0::/docker/abc/work\n", "/my groups/work"),
        ("0::/docker/abc\n", "/my groups"),
        ("0::/docker/other\n", None),  # above or beside what is mounted
        ("0::/../other\n", None),  # outside our namespace of groups
        ("", None),
    ],
)
def test_a_mount_that_shows_a_part_of_the_hierarchy(membership: str, directory: str | None) -> None:
    assert cgroups.own_groups(ONE_GROUP_ALONE, membership) == (directory, {})


def test_a_leaf_for_supervisors_has_its_runs_beside_it(tmp_path: Path) -> None:
    leaf = tmp_path / "unit" / cgroups.LEAF
    leaf.mkdir(parents=True)
    (tmp_path / "unit" / "cgroup.procs").write_text("")
    assert cgroups.v2_parent(str(leaf)) == str(leaf.parent)
    (tmp_path / "unit" / "cgroup.procs").write_text("123\n")
    assert cgroups.v2_parent(str(leaf)) == str(leaf), "its parent has processes: no controllers there"
    assert cgroups.v2_parent(str(leaf.parent)) == str(leaf.parent)


BOTH = {
    "v2": {"parent": "/two", "controllers": ["pids"], "kill": True},
    "v1": {"memory": "/one/memory", "pids": "/one/pids", "cpuacct": "/one/cpuacct"},
}


def test_version_2_is_taken_where_it_has_the_controller() -> None:
    assert cgroups.layout(BOTH, memory=5, processes=6, cpus=0.5, cpu_seconds=1) == {
        "v2": "/two",
        "v1": {"memory": "/one/memory"},
        "accounts": True,
        "memory": 5,
        "processes": 6,
        "cpus": None,  # nobody holds it
    }
    limits = ("tree", "memory", "processes", "cpus", "cpu_seconds")
    assert [cgroups.mechanism(BOTH, one) for one in limits] == [
        "cgroup.kill", "cgroup_v1", "cgroup_v2", None, "cgroup_v2",
    ]  # fmt: skip


@pytest.mark.parametrize("found", [{}, {"v2": None, "v1": {}}])
def test_where_there_are_none_there_is_no_layout(found: dict[str, object]) -> None:
    assert cgroups.layout(found, memory=5, cpu_seconds=1) is None
    assert cgroups.mechanism(found, "tree") is None


def test_the_accounts_of_a_group_that_its_program_left_and_removed() -> None:
    parent = machine_facts().cgroups.get("v1", {}).get("cpuacct")
    if parent is None:
        pytest.skip(f"uid {os.geteuid()} can make no group for cpuacct of version 1 here")
    name = f"test.{os.getpid()}.1"
    groups = run_cgroups.RunCgroups({"v1": {"cpuacct": parent}, "accounts": True}, name)
    assert groups.make() == {}
    assert groups.cpu_seconds() == 0
    os.rmdir(Path(parent, f"{run_cgroups.PREFIX}{name}"))
    assert groups.cpu_seconds() is None
    groups.remove()


@pytest.fixture
def pids_alone() -> Iterator[run_cgroups.RunCgroups]:
    """A group of version 1 with the pids controller, which nothing kills at once."""
    parent = machine_facts().cgroups.get("v1", {}).get("pids")
    if parent is None:
        pytest.skip(f"uid {os.geteuid()} can make no group for pids of version 1 here")
    groups = run_cgroups.RunCgroups({"v1": {"pids": parent}, "processes": 30}, f"test.{os.getpid()}.1")
    assert groups.make() == {}
    yield groups
    groups.remove()


def test_a_group_that_cannot_be_killed_at_once_stops_forking(
    pids_alone: run_cgroups.RunCgroups, hostile: Hostile
) -> None:
    parent = machine_facts().cgroups["v1"]["pids"]
    group = Path(parent, f"dsup-test.{os.getpid()}.1")
    with subprocess.Popen(["sh", "-c", f"read go; exec {hostile('forks')}"], stdin=-1, stdout=-3) as bomb:
        assert bomb.stdin is not None
        assert pids_alone.add(bomb.pid) == {}
        bomb.stdin.write(b"go\n")
        bomb.stdin.close()
        eventually(lambda: int((group / "pids.current").read_text()) == 30)
        pids_alone.kill()
        everybody = {int(pid) for pid in (group / "cgroup.procs").read_text().split()}
        for pid in everybody:
            os.kill(pid, signal.SIGKILL)
    eventually(lambda: (group / "cgroup.procs").read_text() == "")


def test_a_group_of_that_name_is_somebody_elses() -> None:
    needs_group("tree")
    parent = str(machine_facts().cgroups["v2"]["parent"])
    plan = {"v2": parent, "v1": {}, "accounts": True}
    first, second = (run_cgroups.RunCgroups(plan, f"test.{os.getpid()}.2") for _ in range(2))
    try:
        assert first.make() == {}
        assert set(second.make()) == {"tree", "cpu"}
        second.remove()
        assert first.empty(), "the second has removed nothing"
        assert os.path.isdir(os.path.join(parent, f"dsup-test.{os.getpid()}.2"))
    finally:
        first.remove()
    assert run_cgroups.leftovers([parent], "test") == {}


def test_a_user_to_whom_a_group_is_delegated_can_make_runs_beside_its_leaf() -> None:
    needs_group("tree")
    if os.geteuid() != 0:
        pytest.skip(f"uid {os.geteuid()} can delegate nothing")
    unit = os.path.join(str(machine_facts().cgroups["v2"]["parent"]), f"dsup-test.{os.getpid()}.unit")
    leaf = os.path.join(unit, cgroups.LEAF)
    os.makedirs(leaf)
    try:
        for path in (unit, leaf, os.path.join(unit, "cgroup.procs"), os.path.join(leaf, "cgroup.procs")):
            os.chown(path, _NOBODY, _NOBODY)
        found = _probe_as(_NOBODY, leaf)
        assert found == {"v2": {"parent": unit, "controllers": [], "kill": True}, "v1": {}}
    finally:
        assert run_cgroups.remove_soon(unit)


def test_the_group_of_a_probe_that_was_killed_is_removed_by_the_next() -> None:
    needs_group("cpu_seconds")
    with subprocess.Popen(["true"]) as ended:
        pass
    places = cgroups.places()
    for maker in (ended.pid, os.getpid()):
        os.mkdir(Path(places[0], f"{run_cgroups.PREFIX}probe.{maker}"))
    try:
        assert probing.probe().cgroups
        left = run_cgroups.leftovers(places, "probe")
    finally:
        run_cgroups.remove_group(str(Path(places[0], f"{run_cgroups.PREFIX}probe.{os.getpid()}")))
    assert str(ended.pid) not in left
    assert str(os.getpid()) in left, "its maker lives"


def _probe_as(uid: int, group: str) -> object:
    """What the probe says in that group, to that user; in a child of ours."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            kernel.write(os.path.join(group, "cgroup.procs"), str(os.getpid()))
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            os.write(theirs, json.dumps(cgroups.probe()).encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with open(ours, encoding="ascii") as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text)


def _plan(parent: str, *, required: bool) -> Plan:
    plan = Plan()
    plan.cgroups = {"v2": None, "v1": {"memory": parent}, "accounts": False, "memory": 1 << 30}
    asked = {"requested": 1 << 30, "applied": "full", "mechanism": "cgroup_v1", "reason": None}
    plan.axes = {"memory": {**asked, "required": required}}
    return plan


def test_a_group_that_cannot_be_made_after_all_refuses_what_requires_it(tmp_path: Path) -> None:
    """Between the probe and the start a group may have gone, or its user's right to it."""
    with pytest.raises(NotExecuted, match="No such file"):
        carried_out(_plan(str(tmp_path / "gone"), required=True), ["/bin/echo", "ran"], "/")


def test_a_group_that_cannot_be_made_after_all_is_reported(tmp_path: Path) -> None:
    done = carried_out(_plan(str(tmp_path / "gone"), required=False), ["/bin/echo", "ran"], "/")
    assert done.lines == ["ran"]
    assert done.report["memory"]["applied"] == "none"
    assert "No such file" in done.report["memory"]["reason"]


def test_a_limit_that_cannot_be_set_is_a_group_in_vain(tmp_path: Path) -> None:
    """A directory is made here, and has no file for the limit: no hierarchy is mounted any more."""
    with pytest.raises(NotExecuted, match="memory"):
        carried_out(_plan(str(tmp_path), required=True), ["/bin/echo", "ran"], "/")
    assert list(tmp_path.iterdir()) == []
