"""What this machine can enforce: the planner's answers to everything that may be asked for."""

from __future__ import annotations

import os
import platform
from typing import Any

from ...model.capabilities import Capabilities, Capability
from ...model.command import Limits
from ...model.policy import FilesBackend, Grant, Policy
from ...sandbox.facts import Facts
from ...sandbox.plan import Plan
from .confinement import Asked, confinement
from .files import Found
from .probing import machine_facts

_PLACE = "/srv"  # any: nothing is looked at


def _files(backend: FilesBackend) -> Policy:
    return Policy(filesystem=[Grant(_PLACE, "write")], files_backend=backend)


# Axis, the field that asks for it, the policy and the limits that do.
_QUESTIONS: list[tuple[str, str, Policy, dict[str, Any]]] = [
    ("tree", "policy", Policy(), {}),
    ("files", "filesystem, landlock", _files("landlock"), {}),
    ("files", "filesystem, bubblewrap", _files("bubblewrap"), {}),
    ("network", "network=none", Policy(network="none"), {}),
    ("network", "network=loopback", Policy(network="loopback"), {}),
    ("memory", "max_memory_bytes", Policy(), {"max_memory_bytes": 1 << 30}),
    ("cpu", "max_cpu_seconds", Policy(), {"max_cpu_seconds": 60}),
    ("cpu", "max_cpus", Policy(), {"max_cpus": 1}),
    ("processes", "max_processes", Policy(), {"max_processes": 100}),
    ("open_files", "max_open_files", Policy(), {"max_open_files": 100}),
    ("file_size", "max_file_bytes", Policy(), {"max_file_bytes": 1 << 30}),
    ("privileges", "policy", Policy(), {}),
]


def capabilities() -> Capabilities:
    """What can be enforced here, for programs that this process starts: found out by really doing it.

    Blocking, some 0.1 s at the first call; kept for the process.
    """
    facts, uid = machine_facts(), os.geteuid()
    kernel = f"{platform.system()} {platform.release()}"
    return Capabilities(uid, kernel, answers(facts, uid), facts.to_dict())


def answers(facts: Facts, uid: int) -> list[Capability]:
    """The planner's, to each question by itself."""
    return [_answer(facts, uid, *question) for question in _QUESTIONS]


def _answer(
    facts: Facts, uid: int, axis: str, asked: str, policy: Policy, limits: dict[str, Any]
) -> Capability:
    grants = [] if policy.filesystem is None else [Found(_PLACE, "write", 0, 0, _PLACE)]
    plan = confinement(Asked(policy, Limits(**limits), grants, uid), facts)
    assert isinstance(plan, Plan)  # noqa: S101  nothing is required
    report: dict[str, Any] = plan.axes[axis]
    return Capability(axis, asked, report["applied"], report["mechanism"], report["reason"])
