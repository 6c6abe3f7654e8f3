"""The planner, as a table: what is asked, what the machine can do, and what then is planned for each axis."""

from __future__ import annotations

import resource
from dataclasses import replace
from typing import Any

import pytest

from durable_supervisor import ErrorCode, Grant, Limits, Policy, SupervisorError
from durable_supervisor.model.enforcement import AXES
from durable_supervisor.model.policy import FilesBackend
from durable_supervisor.sandbox.facts import Facts
from durable_supervisor.sandbox.plan import Plan
from durable_supervisor.sandbox.probe import PROBES
from durable_supervisor.sandbox.report import GROUP_OPEN, MEMORY_OPEN, RECORDS_OPEN
from durable_supervisor.supervisor.policy.confinement import (
    BY_POLICY,
    NO_GROUP,
    PRIVILEGED,
    Asked,
    confinement,
)
from durable_supervisor.supervisor.policy.files import Found

V2 = {"v2": {"parent": "/sys/fs/cgroup/us", "controllers": ["cpu", "memory", "pids"], "kill": True}, "v1": {}}
V1 = {"v2": None, "v1": {name: f"/sys/fs/cgroup/{name}/us" for name in ("memory", "pids", "cpu", "cpuacct")}}
USER = {"user": True, "net": True, "mount": True, "privileged": False}
ROOT = USER | {"privileged": True}
NONE = {"user": False, "net": False, "mount": False, "privileged": False}
ABLE = Facts(
    privileges=True, seccomp=True, landlock=7, namespaces=USER, cgroups=V2, bubblewrap="/usr/bin/bwrap"
)
UNABLE = Facts(privileges=True)

LIMITS: dict[str, dict[str, Any]] = {
    "memory": {"max_memory_bytes": 1 << 26},
    "processes": {"max_processes": 10},
    "cpu": {"max_cpu_seconds": 2.0},
    "open_files": {"max_open_files": 20},
    "file_size": {"max_file_bytes": 4096},
}


def grants_of(policy: Policy | None) -> list[Found]:
    filesystem = () if policy is None else policy.filesystem or ()
    return [Found(str(one.path), str(one.to_dict()["access"]), 1, 2, str(one.path)) for one in filesystem]


def ruled(facts: Facts, policy: Policy | None, uid: int = 1000, **limits: Any) -> Plan | SupervisorError:
    return confinement(Asked(policy, Limits(**limits), grants_of(policy), uid), facts)


def planned(facts: Facts, policy: Policy | None, uid: int = 1000, **limits: Any) -> Plan:
    plan = ruled(facts, policy, uid, **limits)
    assert isinstance(plan, Plan), plan
    assert set(plan.axes) == set(AXES)
    assert plan.to_message() == Plan.from_message(plan.to_message()).to_message()
    return plan


def reading(**more: Any) -> Policy:
    return Policy(filesystem=[Grant("/repo", "read")], **more)


def writing(**more: Any) -> Policy:
    return Policy(filesystem=[Grant("/repo", "write")], **more)


NETWORKS = [
    # facts, network -> applied, mechanism, namespaces.net, sockets, io_uring refused
    (ABLE, "none", "full", "namespace", True, "own_namespace", True),
    (ABLE, "loopback", "full", "namespace", True, "own_namespace", True),
    (replace(ABLE, seccomp=False), "none", "partial", "namespace", True, None, None),
    (replace(ABLE, namespaces=NONE), "none", "full", "seccomp", False, "none", True),
    (replace(ABLE, namespaces=NONE), "loopback", "none", None, False, None, False),
    (UNABLE, "none", "none", None, False, None, None),
]


@pytest.mark.parametrize(("facts", "mode", "applied", "mechanism", "net", "sockets", "io_uring"), NETWORKS)
def test_network(
    facts: Facts,
    mode: Any,
    applied: str,
    mechanism: str | None,
    net: bool,
    sockets: str | None,
    io_uring: bool | None,
) -> None:
    plan = planned(facts, Policy(network=mode))
    report = plan.axes["network"]
    assert (report["requested"], report["applied"], report["mechanism"]) == (mode, applied, mechanism)
    assert (report["reason"] is None) == (applied == "full")
    assert plan.namespaces["net"] is net
    assert plan.seccomp.get("sockets") == sockets
    assert plan.seccomp.get("io_uring") == io_uring
    assert (plan.network is None) == (applied == "none")


FILES = [
    # facts, policy -> applied, backend, mounts, metadata refused
    (ABLE, writing(), "full", "landlock", True, False),
    (replace(ABLE, namespaces=NONE), reading(), "full", "landlock", False, True),
    (replace(ABLE, namespaces=NONE), writing(), "partial", "landlock", False, False),
    (replace(ABLE, seccomp=False), writing(), "partial", "landlock", True, None),
    (replace(ABLE, landlock=2), writing(), "full", "landlock", True, False),
    (replace(ABLE, landlock=2, namespaces=NONE), writing(), "partial", "bubblewrap", False, False),
    (
        replace(ABLE, landlock=2, namespaces=NONE, bubblewrap=None),
        reading(),
        "partial",
        "landlock",
        False,
        True,
    ),
    (ABLE, writing(files_backend="bubblewrap"), "partial", "bubblewrap", False, False),
    (replace(ABLE, landlock=0), writing(files_backend="landlock"), "none", None, None, False),
    (UNABLE, writing(), "none", None, None, None),
]


@pytest.mark.parametrize(("facts", "policy", "applied", "backend", "mounts", "metadata"), FILES)
def test_files(
    facts: Facts,
    policy: Policy,
    applied: str,
    backend: str | None,
    mounts: bool | None,
    metadata: bool | None,
) -> None:
    plan = planned(facts, policy)
    report = plan.axes["files"]
    assert (report["applied"], report["mechanism"]) == (applied, backend)
    assert (report["reason"] is None) == (applied == "full")
    assert report["requested"] == {"grants": 1}
    assert plan.seccomp.get("metadata") == metadata
    if backend is None:
        assert plan.files is None
        return
    assert plan.files is not None
    assert (plan.files.backend, plan.files.mounts) == (backend, mounts)
    assert plan.files.bwrap == ("/usr/bin/bwrap" if backend == "bubblewrap" else None)
    assert plan.namespaces["mount"] is (backend == "landlock" and mounts)


@pytest.mark.parametrize(("own", "hidden"), [("/work/state", "/work/state"), ("/elsewhere", None)])
@pytest.mark.parametrize("backend", ["landlock", "bubblewrap"])
def test_the_supervisors_own_directory_is_hidden_where_a_grant_has_it(
    backend: FilesBackend, own: str, hidden: str | None
) -> None:
    policy = Policy(filesystem=[Grant("/work", "all")], files_backend=backend)
    plan = confinement(Asked(policy, Limits(), grants_of(policy), 1000, own), ABLE)
    assert isinstance(plan, Plan)
    assert plan.files is not None
    assert plan.files.hidden == hidden
    assert plan.axes["files"]["applied"] == "full"


def test_where_it_cannot_be_hidden_the_axis_is_partial() -> None:
    policy = Policy(filesystem=[Grant("/work", "read")], files_backend="landlock")
    facts = replace(ABLE, namespaces=NONE)
    plan = confinement(Asked(policy, Limits(), grants_of(policy), 1000, "/work/state"), facts)
    assert isinstance(plan, Plan)
    assert (plan.axes["files"]["applied"], plan.axes["files"]["reason"]) == ("partial", RECORDS_OPEN)


def test_landlock_does_not_hold_sockets_in_the_file_system_so_a_filter_does() -> None:
    assert planned(ABLE, reading()).seccomp["sockets"] == "no_unix"
    assert planned(ABLE, reading(network="none")).seccomp["sockets"] == "own_namespace"
    assert planned(ABLE, reading(files_backend="bubblewrap")).seccomp["sockets"] is None


def test_bubblewrap_makes_the_namespaces_itself() -> None:
    plan = planned(ABLE, writing(files_backend="bubblewrap", network="none"), **LIMITS["memory"])
    assert plan.namespaces == {"user": False, "net": False, "mount": False}
    assert plan.network == {"mode": "none", "mechanism": "namespace"}


@pytest.mark.parametrize("namespaces", [USER, ROOT])
def test_others_are_made_in_a_user_namespace_only_where_that_is_needed(namespaces: dict[str, bool]) -> None:
    plan = planned(replace(ABLE, namespaces=namespaces), Policy(network="none"))
    assert plan.namespaces == {"net": True, "mount": False, "user": not namespaces["privileged"]}
    assert planned(replace(ABLE, namespaces=namespaces), Policy()).namespaces["user"] is False


GROUPS = [("memory", "memory"), ("processes", "pids"), ("cpu", "cpuacct")]


@pytest.mark.parametrize(("cgroups", "mechanism"), [(V2, "cgroup_v2"), (V1, "cgroup_v1")])
@pytest.mark.parametrize("axis", ["memory", "processes", "cpu"])
def test_a_group_holds_the_whole_tree(axis: str, cgroups: dict[str, Any], mechanism: str) -> None:
    plan = planned(replace(ABLE, cgroups=cgroups), Policy(), **LIMITS[axis])
    report = plan.axes[axis]
    assert (report["applied"], report["mechanism"], report["reason"]) == ("full", mechanism, None)
    assert plan.cgroups is not None
    assert plan.namespaces["mount"], "else it could leave the group"


@pytest.mark.parametrize("axis", ["memory", "processes", "cpu"])
@pytest.mark.parametrize(
    "facts",
    [replace(ABLE, namespaces=NONE), replace(ABLE, seccomp=False), replace(ABLE, privileges=False)],
    ids=["no mount namespace", "no filter", "no dropping of privileges"],
)
def test_what_it_can_leave_holds_in_part(axis: str, facts: Facts) -> None:
    report = planned(facts, Policy(), **LIMITS[axis]).axes[axis]
    assert report["applied"] == "partial"
    assert "leave" in str(report["reason"])


def test_grants_that_leave_the_groups_alone_keep_it_in_too() -> None:
    facts = replace(ABLE, namespaces=NONE)
    assert planned(facts, writing(), **LIMITS["memory"]).axes["memory"]["applied"] == "full"
    for path in ("/", "/sys", "/sys/fs/cgroup/us/other"):
        policy = Policy(filesystem=[Grant(path, "write")])
        assert planned(facts, policy, **LIMITS["memory"]).axes["memory"]["applied"] == "partial"
    by_link = [Found("/link", "write", 1, 2, "/sys/fs/cgroup/us")]
    ruling = confinement(Asked(writing(), Limits(**LIMITS["memory"]), by_link, 1000), facts)
    assert isinstance(ruling, Plan)
    assert ruling.axes["memory"]["applied"] == "partial"


@pytest.mark.parametrize("uid", [0, 1000])
@pytest.mark.parametrize("axis", ["memory", "processes", "cpu"])
def test_without_a_policy_nothing_keeps_it_in(axis: str, uid: int) -> None:
    plan = planned(ABLE, None, uid, **LIMITS[axis])
    assert plan.axes[axis]["applied"] == "partial"
    assert plan.namespaces == {"user": False, "net": False, "mount": False}
    assert plan.seccomp == {}
    assert not plan.privileges


@pytest.mark.parametrize(
    ("axis", "number"),
    [("memory", resource.RLIMIT_AS), ("processes", resource.RLIMIT_NPROC), ("cpu", resource.RLIMIT_CPU)],
)
def test_without_groups_each_process_is_bounded_by_itself(axis: str, number: int) -> None:
    plan = planned(replace(ABLE, cgroups={}), Policy(), **LIMITS[axis])
    assert (plan.axes[axis]["applied"], plan.axes[axis]["mechanism"]) == ("partial", "rlimit")
    assert str(plan.axes[axis]["reason"]).endswith(NO_GROUP)  # which names the page that says what to do
    assert number in [row[0] for row in plan.rlimits]


def test_the_number_of_roots_processes_is_bounded_by_a_group_alone() -> None:
    assert planned(replace(ABLE, cgroups={}), Policy(), 0, **LIMITS["processes"]).axes["processes"][
        "applied"
    ] == ("none")


def test_a_share_of_a_processor_takes_a_group() -> None:
    facts = replace(ABLE, cgroups={"v2": V2["v2"] | {"controllers": []}, "v1": {}})
    assert planned(facts, Policy(), max_cpus=0.5).axes["cpu"]["applied"] == "none"
    both = planned(facts, Policy(), max_cpus=0.5, max_cpu_seconds=2)
    assert both.axes["cpu"]["applied"] == "partial"
    assert both.axes["cpu"]["requested"] == {"max_cpus": 0.5, "max_cpu_seconds": 2}
    assert both.cpu_seconds == 2


@pytest.mark.parametrize("axis", ["open_files", "file_size"])
def test_what_is_meant_for_each_process_is_held_by_the_kernels_own_limit(axis: str) -> None:
    for facts in (ABLE, UNABLE):
        report = planned(facts, Policy(), 0, **LIMITS[axis]).axes[axis]
        assert (report["applied"], report["mechanism"]) == ("full", "rlimit")
    assert planned(ABLE, None, 1000, **LIMITS[axis]).axes[axis]["applied"] == "full"
    unable = replace(ABLE, privileges=False)
    for facts, policy, reason in (
        (ABLE, None, f"{PRIVILEGED}: {BY_POLICY}"),
        (unable, None, PRIVILEGED),
        (unable, Policy(), PRIVILEGED),
    ):
        assert planned(facts, policy, 0, **LIMITS[axis]).axes[axis]["reason"] == reason


def test_the_reason_names_the_way_out_where_there_is_one() -> None:
    for facts, reason in (
        (ABLE, f"{GROUP_OPEN}: {BY_POLICY}"),
        (replace(ABLE, seccomp=False), GROUP_OPEN),
        (replace(ABLE, namespaces=NONE), GROUP_OPEN),
    ):
        report = planned(facts, None, **LIMITS["memory"]).axes["memory"]
        assert (report["applied"], report["reason"]) == ("partial", reason)
    assert planned(ABLE, Policy(), **LIMITS["memory"]).axes["memory"]["applied"] == "full"


def test_any_policy_drops_privileges_and_refuses_new_ones() -> None:
    plan = planned(ABLE, Policy())
    assert plan.privileges
    assert plan.landlock_scope
    assert plan.seccomp["user_namespaces"]
    assert not plan.seccomp["tracing"], "the scope holds it, and its own children it may trace"
    assert planned(replace(ABLE, landlock=0), Policy()).seccomp["tracing"]
    assert plan.axes["privileges"]["applied"] == "full"
    assert planned(replace(ABLE, seccomp=False), Policy()).axes["privileges"]["applied"] == "partial"
    assert planned(replace(ABLE, privileges=False), Policy()).axes["privileges"]["applied"] == "none"


def test_without_landlock_it_is_kept_from_the_memory_of_others_by_a_user_namespace() -> None:
    old = replace(ABLE, landlock=0)
    plan = planned(old, Policy())
    assert (plan.axes["privileges"]["applied"], plan.namespaces["user"]) == ("full", True)
    assert not planned(ABLE, Policy()).namespaces["user"]
    plan = planned(replace(old, namespaces=NONE), Policy(network="none"))
    for axis in ("privileges", "network"):
        assert (plan.axes[axis]["applied"], plan.axes[axis]["reason"]) == ("partial", MEMORY_OPEN)
    plan = planned(replace(old, namespaces=NONE), Policy(network="none"), 0)
    assert plan.axes["network"]["applied"] == plan.axes["privileges"]["applied"] == "full"


SETTINGS = [
    # what namespaces root can make, policy -> applied, namespaces.mount
    (ROOT | {"settings": True}, Policy(), "full", True),
    (ROOT | {"settings": False}, Policy(), "full", False),
    (NONE | {"settings": True}, Policy(), "partial", False),
    (NONE | {"settings": True}, writing(), "full", False),
    (NONE | {"settings": True}, Policy(filesystem=[Grant("/", "all")]), "partial", False),
]


@pytest.mark.parametrize(("namespaces", "policy", "applied", "mount"), SETTINGS)
def test_root_may_write_the_kernels_settings_unless_something_keeps_it_from_that(
    namespaces: dict[str, bool], policy: Policy, applied: str, mount: bool
) -> None:
    plan = planned(replace(ABLE, namespaces=namespaces), policy, 0)
    assert (plan.axes["privileges"]["applied"], plan.namespaces["mount"]) == (applied, mount)


def test_the_tree_is_held_everywhere() -> None:
    for facts, mechanism in ((ABLE, "cgroup.kill"), (UNABLE, "subreaper")):
        report = planned(facts, Policy(enforcement={"tree": "required"})).axes["tree"]
        assert (report["applied"], report["mechanism"], report["required"]) == ("full", mechanism, True)


REQUIRED: list[tuple[str, Policy, dict[str, Any]]] = [
    ("files", reading(enforcement="required"), {}),
    ("network", Policy(network="none", enforcement="required"), {}),
    ("privileges", Policy(enforcement="required"), {}),
    *(
        (axis, Policy(enforcement={axis: "required"}), LIMITS[axis])
        for axis in ("memory", "cpu", "processes")
    ),
]


@pytest.mark.parametrize(("axis", "policy", "limits"), REQUIRED, ids=[row[0] for row in REQUIRED])
def test_what_is_required_and_cannot_be_had_is_refused_by_its_name(
    axis: str, policy: Policy, limits: dict[str, Any]
) -> None:
    assert planned(ABLE, policy, **limits).required(axis)
    refusal = ruled(UNABLE, policy, **limits)
    assert isinstance(refusal, SupervisorError)
    assert refusal.code is ErrorCode.ENFORCEMENT_REFUSED
    assert refusal.details["axis"] == axis
    assert refusal.details["reason"]


def test_required_is_of_each_axis() -> None:
    policy = Policy(network="none", enforcement={"privileges": "required"})
    plan = planned(replace(ABLE, namespaces=NONE, seccomp=True), policy)
    assert plan.required("privileges")
    assert not plan.required("network")


def test_a_probe_that_could_not_tell_is_named_as_the_reason() -> None:
    facts = Facts.from_lines(b'{"probe": "privileges", "found": true}\n{"probe": "secc', "it was cut short")
    assert facts.privileges
    assert set(facts.failed) == set(PROBES) - {"privileges"}
    refusal = ruled(facts, Policy(network="none", enforcement="required"))
    assert isinstance(refusal, SupervisorError)
    assert "it was cut short" in refusal.message


def test_what_a_probe_raises_is_its_answer() -> None:
    facts = Facts.from_lines(b'{"probe": "landlock", "failed": "OSError: gone"}\n')
    assert facts.landlock == 0
    assert facts.failed["landlock"] == "OSError: gone"
