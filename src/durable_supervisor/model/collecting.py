"""What `gc` is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .arguments import label_of
from .errors import invalid
from .events import iso_time
from .forms import wall_ns
from .schema import schema_name

MOST_NAMED = 1000  # runs that a report names; all are counted
MAX_SECONDS = 1e10  # some three centuries
_MAX_WHOLE = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Criteria:
    """Which runs may go.  A run goes only if every criterion that is given says so.

    ``older_than``: it ended more than so many seconds ago.  ``keep``: it is not among the newest so
    many that are over.  ``max_bytes``: all logs together take more, and it is among the oldest.
    ``label``: it has this one; no other run is looked at, but for ``max_bytes``.
    """

    older_than: float | None = None
    keep: int | None = None
    max_bytes: int | None = None
    label: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        """Raises ``INVALID_REQUEST``, also where nothing is given: that would mean all of them."""
        label_of(self.label)
        older = self.older_than
        if older is not None and (isinstance(older, bool) or not isinstance(older, int | float)):
            raise invalid("older_than", "must be a number of seconds")
        if older is not None and not 0 <= older <= MAX_SECONDS:
            raise invalid("older_than", "must be a finite time of 0 or more")
        for name, value in (("keep", self.keep), ("max_bytes", self.max_bytes)):
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_WHOLE:
                raise invalid(name, "must be a whole number of 0 or more")
        if (self.older_than, self.keep, self.max_bytes, self.label) == (None, None, None, None):
            problem = "needs a criterion: an age, a number to keep, a size or a label"
            raise invalid("gc", problem, "to collect all that is over, keep=0")

    def to_dict(self) -> dict[str, object]:
        """The fields of a gc request that say which."""
        return {
            "older_than": self.older_than,
            "keep": self.keep,
            "max_bytes": self.max_bytes,
            "label": None if self.label is None else list(self.label),
        }


@dataclass(frozen=True, slots=True)
class GcRun:
    """One run that goes, or went.  ``bytes``: the room that its log takes on the disk.

    ``imported``: another directory's, and all that is here of it goes; its age counts from its import.
    """

    run_id: str
    request_id: str
    state: str
    outcome: dict[str, object] | None
    ended_ns: int
    bytes: int
    imported: bool = False

    def to_dict(self) -> dict[str, object]:
        return {
            "run_id": self.run_id,
            "request_id": self.request_id,
            "state": self.state,
            "outcome": self.outcome,
            "ended_at": iso_time(self.ended_ns),
            "bytes": self.bytes,
            "imported": self.imported,
        }

    @classmethod
    def from_dict(cls, form: Mapping[str, Any]) -> GcRun:
        """Raises KeyError, ValueError."""
        return cls(
            form["run_id"],
            form["request_id"],
            form["state"],
            form["outcome"],
            wall_ns(form["ended_at"]),
            form["bytes"],
            form.get("imported", False),
        )


@dataclass(frozen=True, slots=True)
class GcReport:
    """What `gc` would do, or (``applied``) has done.

    ``runs``: the first of those that go, oldest first, `MOST_NAMED` at the most; ``count`` and ``bytes``
    are of all.  ``kept``: how many stay, by the first reason for it.  ``left``: how many of the collected
    still have files that could not be removed; the next `gc`, or owner, tries again.
    """

    runs: tuple[GcRun, ...]
    count: int
    bytes: int
    kept: dict[str, int] = field(default_factory=dict)
    applied: bool = False
    left: int = 0

    def to_dict(self) -> dict[str, object]:
        """The gc document."""
        return {
            "schema": schema_name("gc"),
            "applied": self.applied,
            "count": self.count,
            "bytes": self.bytes,
            "runs": [run.to_dict() for run in self.runs],
            "kept": self.kept,
            "left": self.left,
        }

    @classmethod
    def from_dict(cls, form: Mapping[str, Any]) -> GcReport:
        """From a gc document.  Raises KeyError, ValueError."""
        return cls(
            tuple(GcRun.from_dict(run) for run in form["runs"]),
            form["count"],
            form["bytes"],
            form["kept"],
            form["applied"],
            form["left"],
        )
