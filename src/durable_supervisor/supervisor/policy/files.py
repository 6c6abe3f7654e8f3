"""The files axis of a plan: which mechanism holds the grants, and what it leaves open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...model.enforcement import FULL, NONE, PARTIAL
from ...model.policy import Policy
from ...sandbox.facts import Facts
from ...sandbox.files.landlock import TRUNCATE_SINCE
from ...sandbox.plan import Files, Plan
from ...sandbox.report import (
    BUBBLEWRAP,
    LANDLOCK,
    METADATA_OPEN,
    NO_FILTER,
    RECORDS_OPEN,
    SOCKETS_OPEN,
    TRUNCATION_OPEN,
)

_WRITING = ("write", "all")
_EXECUTING = ("execute", "all")


class Found(NamedTuple):
    """A grant, and what its path named when it was looked at; ``real``: without symbolic links."""

    path: str
    access: str
    device: int
    inode: int
    real: str


def decide(
    policy: Policy, grants: Sequence[Found], own: str | None, facts: Facts, plan: Plan
) -> tuple[str, str | None, str | None]:
    """What is applied, by what, and why it is less; puts into the plan what it takes.

    ``own``: the supervisor's directory, which no program uses, whatever is granted with what it lies in.
    """
    backend = choose(policy.files_backend, facts)
    if backend is None:
        return NONE, None, _nothing(policy.files_backend, facts)
    files = plan.files = Files(
        backend,
        [(one.path, one.access, one.device, one.inode) for one in grants],
        abi=facts.landlock if backend == LANDLOCK else 0,
        bwrap=facts.bubblewrap if backend == BUBBLEWRAP else None,
        hidden=own if own is not None and any(is_within(own, one.real) for one in grants) else None,
    )
    if backend == BUBBLEWRAP:
        if all(one.access in _EXECUTING for one in grants):
            return FULL, backend, None
        return PARTIAL, backend, "what may be read may be executed as well"
    open_ends = _hold_beside_landlock(policy, grants, facts, plan, files)
    return (PARTIAL, backend, "; ".join(open_ends)) if open_ends else (FULL, backend, None)


def choose(wanted: str, facts: Facts) -> str | None:
    """Landlock costs nothing and leaves the program its own parent: first, where truncation is held too."""
    able = {LANDLOCK: facts.landlock > 0, BUBBLEWRAP: facts.bubblewrap is not None}
    if wanted != "auto":
        return wanted if able[wanted] else None
    truncation_held = facts.landlock >= TRUNCATE_SINCE or facts.namespaces.get("mount")
    order = (LANDLOCK, BUBBLEWRAP) if truncation_held else (BUBBLEWRAP, LANDLOCK)
    return next((backend for backend in order if able[backend]), None)


def reaches(grants: Sequence[Found], path: str) -> bool:
    """May the program write there, or somewhere beneath, by one of its grants?"""
    return any(
        one.access in _WRITING and (is_within(path, one.real) or is_within(one.real, path)) for one in grants
    )


def is_within(path: str, folder: str) -> bool:
    """Both absolute and normal: is it the folder itself, or something beneath it?"""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _hold_beside_landlock(
    policy: Policy, grants: Sequence[Found], facts: Facts, plan: Plan, files: Files
) -> list[str]:
    """What Landlock itself leaves open is held by others, where they are to be had; what is left open."""
    found = []
    if policy.network == "host":
        plan.seccomp.update(sockets="no_unix", io_uring=True)
    if not facts.seccomp:
        reason = facts.lacking("seccomp", NO_FILTER)
        found.append(f"{SOCKETS_OPEN}: {reason}")
    if facts.namespaces.get("mount"):
        files.mounts = True  # read-only, which holds truncation as well
        return found
    if files.hidden is not None:
        found.append(RECORDS_OPEN)
    if facts.landlock < TRUNCATE_SINCE:
        found.append(f"{TRUNCATION_OPEN}: Landlock here has ABI {facts.landlock}")
    if facts.seccomp and not any(one.access in _WRITING for one in grants):
        plan.seccomp["metadata"] = True
    else:
        reason = facts.lacking("namespaces", "this user can make no mount namespace")
        found.append(f"{METADATA_OPEN}: {reason}")
    return found


def _nothing(wanted: str, facts: Facts) -> str:
    lacking = {
        LANDLOCK: facts.lacking("landlock", "this kernel has no Landlock"),
        BUBBLEWRAP: facts.lacking("bubblewrap", "there is no bubblewrap that works here"),
    }
    return lacking.get(wanted) or "; ".join(lacking.values())
