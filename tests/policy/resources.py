"""What tests of limits share: is there a group for it here, and what is left of one."""

from __future__ import annotations

import os
from functools import cache

import pytest

from durable_supervisor.sandbox.resources import cgroups, run_cgroups
from durable_supervisor.supervisor.policy.probing import machine_facts

MIB = 1 << 20


@cache
def held_by(limit: str) -> str | None:
    """``cgroup_v1``, ``cgroup_v2`` …, or None where only rlimits can be had."""
    return cgroups.mechanism(machine_facts().cgroups, limit)


def needs_group(limit: str) -> None:
    """Skip, and say so, where this user can make no group that holds ``limit``."""
    if held_by(limit) is None:
        pytest.skip(f"no group that holds {limit} can be made here by uid {os.geteuid()}")


def without_group(limit: str) -> None:
    """The reverse: what is tested is the weaker thing."""
    if held_by(limit) is not None:
        pytest.skip(f"uid {os.geteuid()} can make groups for {limit} here: the rlimit is not used")


def groups_of(directory_id: str) -> list[str]:
    """All groups of runs of this state directory, by path."""
    return [
        path for paths in run_cgroups.leftovers(cgroups.places(), directory_id).values() for path in paths
    ]
