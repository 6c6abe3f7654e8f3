"""What was enforced of what was asked, axis by axis.  Imported by the worker: light."""

from __future__ import annotations

# In the order in which reports show them.
AXES = ("tree", "files", "network", "memory", "cpu", "processes", "open_files", "file_size", "privileges")

# What a policy may say of them: see `policy.Policy`.
NETWORKS = ("host", "none", "loopback")
LEVELS = ("best_effort", "required")
BACKENDS = ("auto", "landlock", "bubblewrap")

FULL = "full"  # as asked, for the whole tree
PARTIAL = "partial"  # something weaker: the reason says what it lacks
NONE = "none"
SUBREAPER = "subreaper"  # how every tree is held at the least: see `process.tree`


def axis_report(
    requested: object, applied: str = NONE, mechanism: str | None = None, reason: str | None = None
) -> dict[str, object]:
    """One axis.  ``requested`` is None where nothing was; ``applied`` is one of the three above.

    ``reason``: why it is less than was asked for.
    """
    return {"requested": requested, "applied": applied, "mechanism": mechanism, "reason": reason}


def unconfined() -> dict[str, dict[str, object]]:
    """The report of a run for which nothing was asked.  Every log has it: readers know the rest (`axis`)."""
    return {"tree": axis_report(True, FULL, SUBREAPER)}
