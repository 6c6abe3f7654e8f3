"""The options of ``start`` and ``run`` that confine the program: a policy, and limits for the kernel."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from durable_supervisor.model.enforcement import AXES, BACKENDS, LEVELS, NETWORKS
from durable_supervisor.model.errors import invalid

from ..options import parse
from ..options.declared import Option, one_of

if TYPE_CHECKING:
    from durable_supervisor.model.policy import Grant, Policy

Network = Annotated[
    str | None,
    Option(
        "--network",
        metavar="|".join(NETWORKS),
        help="What it may reach [default: host].",
        complete=one_of(*NETWORKS),
    ),
]
Grants = Annotated[
    list[str] | None,
    Option(
        "--grant",
        metavar="PATH[:ACCESS]",
        help="Nothing but what is granted: read, execute, write or all [default: read]; may be repeated.",
    ),
]
FilesBackend = Annotated[
    str | None,
    Option(
        "--files-backend",
        metavar="|".join(BACKENDS),
        help="What holds the grants [default: auto].",
        complete=one_of(*BACKENDS),
    ),
]
Enforcement = Annotated[
    list[str] | None,
    Option(
        "--enforcement",
        metavar="LEVEL|AXIS=LEVEL",
        help="best_effort, or required: refuse the start where it cannot be enforced; for all axes, or for"
        " one (network=required); may be repeated.",
        complete=one_of(*LEVELS, *(f"{axis}={level}" for axis in AXES for level in LEVELS)),
    ),
]
Memory = Annotated[
    str | None, Option("--memory", metavar="SIZE", help="Memory of the whole tree, such as 512M.")
]
CpuTime = Annotated[
    str | None, Option("--cpu-time", metavar="TIME", help="Time on a processor, such as 90 or 10m.")
]
Cpus = Annotated[
    str | None, Option("--cpus", metavar="N", help="Share of the processors: 0.5 is half of one.")
]
Processes = Annotated[str | None, Option("--processes", metavar="N", help="Processes and threads at once.")]
OpenFiles = Annotated[str | None, Option("--open-files", metavar="N", help="Open files of each process.")]
FileSize = Annotated[
    str | None, Option("--file-size", metavar="SIZE", help="Greatest file that it may write.")
]
MaxStdin = Annotated[str | None, Option("--max-stdin", metavar="SIZE", help="Bytes of stdin in all.")]


def policy(words: Mapping[str, Any]) -> Policy | None:
    """From the options by name; None where none of them is given.  Raises INVALID_REQUEST."""
    asked: dict[str, Any] = {
        "network": words["network"],
        "filesystem": [_grant(word) for word in words["grant"]] if words["grant"] else None,
        "files_backend": words["files_backend"],
        "enforcement": _enforcement(words["enforcement"]) if words["enforcement"] else None,
    }
    given = {name: value for name, value in asked.items() if value is not None}
    if not given:
        return None
    from durable_supervisor.model.policy import Policy  # most starts have none

    return Policy(**given)


def limits(words: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of `Limits` from the options by name, those that are given.  Raises INVALID_REQUEST."""
    sizes = {"max_memory_bytes": "memory", "max_file_bytes": "file_size", "max_stdin_bytes": "max_stdin"}
    counts = {"max_processes": "processes", "max_open_files": "open_files"}
    found: dict[str, Any] = {
        field: parse.size(f"limits.{field}", words[name])
        for field, name in sizes.items()
        if words[name] is not None
    }
    for field, name in counts.items():
        if words[name] is not None:
            found[field] = parse.whole(f"limits.{field}", words[name])
    if words["cpus"] is not None:
        found["max_cpus"] = parse.factor("limits.max_cpus", words["cpus"])
    if words["cpu_time"] is not None:
        found["max_cpu_seconds"] = parse.seconds("limits.max_cpu_seconds", words["cpu_time"])
    return found


def _grant(word: str) -> Grant:
    """``PATH:ACCESS``; what does not end with an access is a path as it stands."""
    from durable_supervisor.model.policy import Access, Grant

    path, colon, access = word.rpartition(":")
    if not colon or access not in list(Access):
        if path and os.path.exists(path) and not os.path.lexists(word):  # a slip, not a name with a colon
            raise invalid("policy.filesystem", f"has an access other than {', '.join(Access)}")
        path, access = word, Access.READ.value
    if not path:
        raise invalid("policy.filesystem", "has a grant without a path", "--grant /repo:read")
    return Grant(os.path.abspath(path), Access(access))


def _enforcement(words: Sequence[str]) -> str | dict[str, str]:
    """One level for all axes, or one for each that is named."""
    if len(words) == 1 and "=" not in words[0]:
        return words[0].replace("-", "_")
    return {axis: level.replace("-", "_") for axis, level in parse.pairs("policy.enforcement", words).items()}
