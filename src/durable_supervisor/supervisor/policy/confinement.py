"""From what is asked and what this machine can do to a plan.  Decisions only.

Each axis is decided by a function of its own, which says in the report what will be enforced and puts
into the plan what that takes.  A required axis that is not enforced in full is refused here, before
anything is written or spawned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...model.command import Limits
from ...model.enforcement import AXES, FULL, NONE, PARTIAL, SUBREAPER, axis_report
from ...model.errors import SupervisorError, enforcement_refused
from ...model.policy import Policy
from ...sandbox.facts import Facts
from ...sandbox.files.landlock import MOVE_SINCE
from ...sandbox.plan import Plan
from ...sandbox.report import (
    BUBBLEWRAP,
    GROUP_OPEN,
    MEMORY_OPEN,
    NAMESPACE,
    NO_FILTER,
    NO_NEW_PRIVS,
    RLIMIT,
    SECCOMP,
    SETTINGS_OPEN,
    SOCKETS_OPEN,
)
from ...sandbox.resources import cgroups, rlimits
from . import files as confining_files

PRIVILEGED = "the program keeps the capabilities of root, and may raise it"
BY_POLICY = "any policy closes that, Policy() or --network host"
NO_GROUP = "no group with that controller can be made here (docs/policy.md, 'Which groups there are')"
_EACH = "each process is bounded by itself, not the tree together"
_USER = "counts all processes of the user, not the tree's"
_NOT_ROOT = "the kernel does not hold root's processes to a user's limit"
_NO_CALL_REFUSED: dict[str, object] = {
    "sockets": None,
    "io_uring": False,
    "tracing": False,
    "user_namespaces": False,
    "metadata": False,
}

Report = dict[str, object]
# What becomes of a request: its plan, None where it asks for none, or what a new one is refused with.
Ruling = Plan | SupervisorError | None


class Asked(NamedTuple):
    """What bears on a plan.  ``grants`` are the policy's, as they were found; ``uid`` runs the program.

    ``own`` is the supervisor's directory.
    """

    policy: Policy | None
    limits: Limits
    grants: Sequence[confining_files.Found]
    uid: int
    own: str | None = None

    def requires(self, axis: str) -> bool:
        return self.policy is not None and self.policy.required(axis)


def confinement(asked: Asked, facts: Facts) -> Plan | SupervisorError:
    """``ENFORCEMENT_REFUSED`` where a required axis cannot be had as asked."""
    plan = Plan()
    plan.seccomp = dict(_NO_CALL_REFUSED)
    plan.rlimits = rlimits.table(asked.limits, facts.cgroups)
    reports = {axis: decide(asked, facts, plan) for axis, decide in _DECISIONS.items()}
    if not facts.seccomp or not any(plan.seccomp.values()):
        plan.seccomp = {}
    for axis in AXES:
        report = reports[axis]
        required = asked.requires(axis) and report["requested"] is not None
        if required and report["applied"] != FULL:
            return enforcement_refused(axis, str(report["reason"]))
        plan.axes[axis] = {**report, "required": required}
    return plan


def _files(asked: Asked, facts: Facts, plan: Plan) -> Report:
    if asked.policy is None or asked.policy.filesystem is None:
        return axis_report(None)
    # The policy itself is beside every report; a receipt shall stay small, to fit onto a full disk.
    requested = {"grants": len(asked.policy.filesystem)}
    applied, mechanism, reason = confining_files.decide(asked.policy, asked.grants, asked.own, facts, plan)
    if plan.files is not None and plan.files.mounts:
        _enter(plan, facts, "mount")
    return axis_report(requested, applied, mechanism, reason)


def _network(asked: Asked, facts: Facts, plan: Plan) -> Report:
    mode = "host" if asked.policy is None else asked.policy.network
    if mode == "host":
        return axis_report(None)
    if facts.namespaces.get("net"):
        plan.network = {"mode": mode, "mechanism": NAMESPACE}
        plan.seccomp.update(sockets="own_namespace", io_uring=True)
        _enter(plan, facts, "net")
        if facts.seccomp:
            return axis_report(mode, FULL, NAMESPACE)
        return axis_report(mode, PARTIAL, NAMESPACE, f"{SOCKETS_OPEN}: {_no_filter(facts)}")
    lacking = facts.lacking("namespaces", "this user can make no network namespace")
    if mode == "loopback":
        return axis_report(mode, NONE, None, lacking)
    if not facts.seccomp:
        return axis_report(mode, NONE, None, f"{lacking}; {_no_filter(facts)}")
    plan.network = {"mode": mode, "mechanism": SECCOMP}
    plan.seccomp.update(sockets="none", io_uring=True)
    if not _is_apart(asked, facts, plan):
        return axis_report(mode, PARTIAL, SECCOMP, MEMORY_OPEN)
    return axis_report(mode, FULL, SECCOMP)


def _privileges(asked: Asked, facts: Facts, plan: Plan) -> Report:
    if asked.policy is None:
        return axis_report(None)
    if not facts.privileges:
        return axis_report(True, NONE, None, facts.lacking("privileges", "privileges cannot be dropped"))
    plan.privileges = True
    plan.landlock_scope = facts.landlock >= MOVE_SINCE  # before, it would get in the way of files
    plan.seccomp.update(user_namespaces=True, tracing=not plan.landlock_scope)
    open_ends = []
    if not facts.seccomp:
        open_ends.append(f"a user namespace of its own gives it capabilities within: {_no_filter(facts)}")
    if not _is_apart(asked, facts, plan):
        open_ends.append(MEMORY_OPEN)
    if facts.namespaces.get("settings") and not _is_beyond(asked, facts, plan, ["/proc", "/sys"]):
        open_ends.append(SETTINGS_OPEN)
    if open_ends:
        return axis_report(True, PARTIAL, NO_NEW_PRIVS, "; ".join(open_ends))
    return axis_report(True, FULL, NO_NEW_PRIVS)


def _tree(asked: Asked, facts: Facts, plan: Plan) -> Report:
    """Held in any case; a group's kill is only quicker, and reaches all at once."""
    limits = asked.limits
    plan.cgroups = cgroups.layout(
        facts.cgroups,
        memory=limits.max_memory_bytes,
        processes=limits.max_processes,
        cpus=limits.max_cpus,
        cpu_seconds=limits.max_cpu_seconds,
    )
    return axis_report(True, FULL, cgroups.mechanism(facts.cgroups, "tree") or SUBREAPER)


def _memory(asked: Asked, facts: Facts, plan: Plan) -> Report:
    most = asked.limits.max_memory_bytes
    if most is None:
        return axis_report(None)
    group = cgroups.mechanism(facts.cgroups, "memory")
    if group is not None:
        return _by_group(asked, facts, plan, most, group)
    return _by_rlimit(asked, facts, most, f"{_EACH}, by its address space: {_no_group(facts)}")


def _processes(asked: Asked, facts: Facts, plan: Plan) -> Report:
    most = asked.limits.max_processes
    if most is None:
        return axis_report(None)
    group = cgroups.mechanism(facts.cgroups, "processes")
    if group is not None:
        return _by_group(asked, facts, plan, most, group)
    if asked.uid == 0:
        return axis_report(most, NONE, None, f"{_NOT_ROOT}: {_no_group(facts)}")
    return _by_rlimit(asked, facts, most, f"{_USER}: {_no_group(facts)}")


def _cpu(asked: Asked, facts: Facts, plan: Plan) -> Report:
    """Two limits on one axis: what holds the weaker one is what counts."""
    seconds, share = asked.limits.max_cpu_seconds, asked.limits.max_cpus
    wanted = {"max_cpu_seconds": seconds, "max_cpus": share}
    requested = {name: value for name, value in wanted.items() if value is not None}
    if not requested:
        return axis_report(None)
    plan.cpu_seconds = seconds
    by_time = cgroups.mechanism(facts.cgroups, "cpu_seconds")
    by_share = cgroups.mechanism(facts.cgroups, "cpus")
    if share is not None and by_share is None:
        lacking = f"no share of a processor can be held: {_no_group(facts)}"
        if seconds is None:
            return axis_report(requested, NONE, None, lacking)
        return axis_report(requested, PARTIAL, by_time or RLIMIT, lacking)
    if seconds is not None and by_time is None:
        return _by_rlimit(asked, facts, requested, f"{_EACH}: {_no_group(facts)}")
    return _by_group(asked, facts, plan, requested, str(by_share if share is not None else by_time))


def _open_files(asked: Asked, facts: Facts, plan: Plan) -> Report:
    return _per_process(asked, facts, asked.limits.max_open_files)


def _file_size(asked: Asked, facts: Facts, plan: Plan) -> Report:
    return _per_process(asked, facts, asked.limits.max_file_bytes)


def _per_process(asked: Asked, facts: Facts, most: int | None) -> Report:
    """These two are meant for each process: the kernel's own limit is all that is asked for."""
    if most is None:
        return axis_report(None)
    if _may_raise(asked, facts):
        return axis_report(most, PARTIAL, RLIMIT, _privileged(facts))
    return axis_report(most, FULL, RLIMIT)


def _by_rlimit(asked: Asked, facts: Facts, requested: object, reason: str) -> Report:
    if _may_raise(asked, facts):
        reason = f"{reason}; {_privileged(facts)}"
    return axis_report(requested, PARTIAL, RLIMIT, reason)


def _by_group(asked: Asked, facts: Facts, plan: Plan, requested: object, mechanism: str) -> Report:
    """In full only if the program cannot move itself into another group."""
    if _is_kept_in(asked, facts, plan):
        return axis_report(requested, FULL, mechanism)
    confined = asked._replace(policy=Policy())
    closable = asked.policy is None and _is_kept_in(confined, facts, Plan())
    reason = f"{GROUP_OPEN}: {BY_POLICY}" if closable else GROUP_OPEN
    return axis_report(requested, PARTIAL, mechanism, reason)


def _is_kept_in(asked: Asked, facts: Facts, plan: Plan) -> bool:
    """Are the groups' files not its to write, and clone3(2), for which a descriptor will do, refused?"""
    if asked.policy is None or not facts.seccomp or not facts.privileges:
        return False
    return _is_beyond(asked, facts, plan, [cgroups.ROOT, *_parents(facts)])


def _is_beyond(asked: Asked, facts: Facts, plan: Plan, kernels: Sequence[str]) -> bool:
    """Can nothing be written beneath these, which are file systems of the kernel's own?"""
    wrapped = plan.files is not None and plan.files.backend == BUBBLEWRAP
    if facts.namespaces.get("mount") and not wrapped:
        _enter(plan, facts, "mount")  # where they are read-only: see `sandbox.namespaces`
        return True
    return plan.files is not None and not any(confining_files.reaches(asked.grants, path) for path in kernels)


def _is_apart(asked: Asked, facts: Facts, plan: Plan) -> bool:
    """Can it have no other process of its user do what it may not, by writing to its memory in /proc?

    What forbids it (ptrace(2)): a Landlock domain, a user namespace of its own, or, to root without
    capabilities, that the other one has them.
    """
    if facts.landlock >= MOVE_SINCE or asked.uid == 0:
        return True
    if facts.namespaces.get("user") and not facts.namespaces.get("privileged"):
        _enter(plan, facts, "user")
        return True
    return False


def _parents(facts: Facts) -> list[str]:
    v2, v1 = facts.cgroups.get("v2"), facts.cgroups.get("v1") or {}
    return [*v1.values(), *([v2["parent"]] if v2 else [])]


def _enter(plan: Plan, facts: Facts, namespace: str) -> None:
    """Inside a user namespace where the user may not do it as it is; bubblewrap makes all by itself."""
    if plan.files is None or plan.files.backend != BUBBLEWRAP:
        plan.namespaces.update({namespace: True, "user": not facts.namespaces.get("privileged")})


def _may_raise(asked: Asked, facts: Facts) -> bool:
    """Root that keeps its capabilities may raise its own limits again (setrlimit(2))."""
    return asked.uid == 0 and (asked.policy is None or not facts.privileges)


def _privileged(facts: Facts) -> str:
    """Without a policy, or where not even one drops them."""
    return f"{PRIVILEGED}: {BY_POLICY}" if facts.privileges else PRIVILEGED


def _no_filter(facts: Facts) -> str:
    return facts.lacking("seccomp", NO_FILTER)


def _no_group(facts: Facts) -> str:
    return facts.lacking("cgroups", NO_GROUP)


# In this order: what the files need decides how the others get their namespaces.
_DECISIONS: dict[str, Callable[[Asked, Facts, Plan], Report]] = {
    "files": _files,
    "network": _network,
    "privileges": _privileges,
    "tree": _tree,
    "memory": _memory,
    "cpu": _cpu,
    "processes": _processes,
    "open_files": _open_files,
    "file_size": _file_size,
}
