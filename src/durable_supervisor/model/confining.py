"""Policies and enforcement reports of documents in words, as people read them.  Not escaped.

Documents may come from anywhere: what is not of their form says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from .enforcement import AXES
from .quantities import number, size

_COUNTED = {"max_processes": "processes", "max_open_files": "open files", "max_cpus": "processors"}
_SIZED = {"max_memory_bytes": "memory", "max_file_bytes": "files of", "max_stdin_bytes": "stdin"}


def policy_words(policy: object) -> str:
    """``network none; files /repo (read), /out (all); required: network``; nothing without a policy."""
    if not isinstance(policy, Mapping):
        return ""
    words = [f"network {policy.get('network')}"]
    grants = policy.get("filesystem")
    if isinstance(grants, list):
        named = [f"{one.get('path')} ({one.get('access')})" for one in grants if isinstance(one, Mapping)]
        words.append(f"files {', '.join(named) or 'none'}")
    if policy.get("files_backend") not in (None, "auto"):
        words.append(f"by {policy.get('files_backend')}")
    level = policy.get("enforcement")
    if isinstance(level, Mapping):
        required = ", ".join(str(axis) for axis, one in level.items() if one == "required")
        words.append(f"required: {required}" if required else "best effort")
    else:
        words.append("all of it required" if level == "required" else "best effort")
    return "; ".join(words)


def enforcement_words(report: object) -> dict[str, str]:
    """What was asked of each axis: ``{"memory": "partial, by rlimit: each process by itself"}``.

    Nothing of a run that was not confined: that its tree is held goes without saying.
    """
    found = {
        axis: _axis_words(report[axis])
        for axis in AXES
        if isinstance(report, Mapping) and _is_asked(report.get(axis))
    }
    return {} if set(found) == {"tree"} else found


def confined_words(detail: Mapping[str, object]) -> str:
    """A ``program.confined`` event on one line."""
    found = enforcement_words(detail.get("enforcement"))
    return "; ".join(f"{axis} {words}" for axis, words in found.items())


def _is_asked(axis: object) -> bool:
    return isinstance(axis, Mapping) and axis.get("requested") is not None


def _axis_words(axis: Mapping[str, object]) -> str:
    words = str(axis.get("applied"))
    if axis.get("mechanism"):
        words += f", by {axis.get('mechanism')}"
    return f"{words}: {axis.get('reason')}" if axis.get("reason") else words


def limit_words(limits: object) -> list[str]:
    """Those of a run's limits that the kernel is asked to hold, and that of its stdin."""
    if not isinstance(limits, Mapping):
        return []
    words = [
        f"{label} {size(limits[name])}" for name, label in _SIZED.items() if limits.get(name) is not None
    ]
    for name, label in _COUNTED.items():
        if (value := number(limits.get(name))) is not None:
            words.append(f"{value:g} {label}")
    if (seconds := number(limits.get("max_cpu_seconds"))) is not None:
        words.append(f"{seconds:g} s of processor time")
    return words
