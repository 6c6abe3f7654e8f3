"""What the verbs answer with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..journal.feed import FeedEntry
from ..model.events import iso_time
from ..model.outcome import Outcome
from ..model.schema import schema_name
from ..model.states import RunState
from ..reconcile.view import RunView


@dataclass(frozen=True, slots=True)
class Run:
    """The durable answer to `start`.  ``admission``: ``new``, ``existing`` or ``retry``."""

    id: str
    state: RunState
    request_id: str
    attempt: int
    admission: str
    nested_in: str | None = None
    survives_unit_restart: bool | None = None

    def to_dict(self) -> dict[str, object]:
        """The start document."""
        return {
            "schema": schema_name("start"),
            "run_id": self.id,
            "state": self.state.value,
            "request_id": self.request_id,
            "attempt": self.attempt,
            "admission": self.admission,
            "nested_in": self.nested_in,
            "survives_unit_restart": self.survives_unit_restart,
        }


@dataclass(frozen=True, slots=True)
class ListPage:
    """Runs, newest first; ``next_before`` is the cursor of the next page, None at the end."""

    runs: Sequence[RunView]
    next_before: int | None

    def to_dict(self) -> dict[str, object]:
        """The list document."""
        return {
            "schema": schema_name("list"),
            "runs": [_summary(view) for view in self.runs],
            "next_before": self.next_before,
        }


@dataclass(frozen=True, slots=True)
class StopReceipt:
    """What a stop came to.

    ``result``: ``stopping`` (this stop began the ladder), ``already_stopping``, or
    ``already_ended``.  ``confirmed``: the run is over, with nothing left of it running.
    """

    run_id: str
    state: RunState
    control_id: str | None
    result: str
    confirmed: bool
    outcome: Outcome | None = None

    def to_dict(self) -> dict[str, object]:
        """The stop document."""
        return {
            "schema": schema_name("stop"),
            "run_id": self.run_id,
            "state": self.state.value,
            "control_id": self.control_id,
            "result": self.result,
            "confirmed": self.confirmed,
            "outcome": None if self.outcome is None else self.outcome.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class ControlReceipt:
    """The worker's answer to a control; ``detail`` are its further fields (bytes, pids)."""

    run_id: str
    control_id: str
    op: str
    result: str
    seq: int
    detail: dict[str, object] = field(default_factory=dict)

    def to_dict(self) -> dict[str, object]:
        return {
            "run_id": self.run_id,
            "control_id": self.control_id,
            "op": self.op,
            "result": self.result,
            "seq": self.seq,
            **self.detail,
        }


@dataclass(frozen=True, slots=True)
class ShutdownReport:
    """Runs that `shutdown` saw end, and those it could not confirm, by id."""

    stopped: list[str]
    unconfirmed: list[str]


@dataclass(frozen=True, slots=True)
class ReconcileReport:
    """How many runs were judged, and which of them changed to which state."""

    judged: int
    changed: dict[str, str]

    def to_dict(self) -> dict[str, object]:
        return {"judged": self.judged, "changed": self.changed}


def feed_entry(entry: FeedEntry) -> dict[str, object]:
    """One entry of the feed document."""
    return {
        "position": entry.position,
        "time": iso_time(entry.time_ns),
        "run_id": entry.run_id,
        "attempt": entry.attempt,
        "state": entry.state.value,
        "trigger": entry.trigger,
        "reason": entry.reason,
    }


def _summary(view: RunView) -> dict[str, object]:
    form = view.to_dict()
    names = ("run_id", "state", "request_id", "attempt", "argv", "labels", "created_at", "updated_at")
    return {name: form[name] for name in (*names, "outcome", "reason")}
