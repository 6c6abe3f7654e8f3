"""What the verbs but `start` answer with (`run` has that)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .events import iso_time
from .forms import wall_ns
from .outcome import Outcome
from .schema import schema_name
from .states import RunState
from .view import RunView


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

    ``result``: ``stopping`` (this stop began the ladder), ``already_stopping``, ``already_ended``,
    or ``not_started`` (it was queued, and never will start).  ``confirmed``: the run is over,
    with nothing left of it running.
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

    @classmethod
    def from_dict(cls, form: Mapping[str, Any]) -> StopReceipt:
        """From a stop document.  Raises KeyError, ValueError."""
        outcome = form["outcome"]
        return cls(
            form["run_id"],
            RunState(form["state"]),
            form["control_id"],
            form["result"],
            form["confirmed"],
            None if outcome is None else Outcome.from_dict(outcome),
        )


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

    @classmethod
    def from_dict(cls, form: Mapping[str, Any]) -> ControlReceipt:
        """From a control document, with or without its schema.  Raises KeyError."""
        known = ("schema", "run_id", "control_id", "op", "result", "seq")
        detail = {name: value for name, value in form.items() if name not in known}
        return cls(form["run_id"], form["control_id"], form["op"], form["result"], form["seq"], detail)


@dataclass(frozen=True, slots=True)
class ShutdownReport:
    """Runs that `shutdown` saw end, and those it could not confirm, by id."""

    stopped: list[str]
    unconfirmed: list[str]


@dataclass(frozen=True, slots=True)
class Capacity:
    """The limits of a supervisor (None: none), and how many runs hold a slot and wait for one now."""

    max_concurrent_runs: int | None
    max_runs_per_owner: int | None
    max_queued_runs: int | None
    held: int
    queued: int


@dataclass(frozen=True, slots=True)
class ReconcileReport:
    """How many runs were judged, and which of them changed to which state."""

    judged: int
    changed: dict[str, str]

    def to_dict(self) -> dict[str, object]:
        return {"judged": self.judged, "changed": self.changed}

    @classmethod
    def from_dict(cls, form: Mapping[str, Any]) -> ReconcileReport:
        """From a reconcile document.  Raises KeyError."""
        return cls(form["judged"], form["changed"])


@dataclass(frozen=True, slots=True)
class FeedEntry:
    """``position`` counts from 1 without gaps; ``trigger`` is ``admit``, ``recover`` or a `Trigger` value."""

    position: int
    time_ns: int
    run_id: str
    attempt: int
    state: RunState
    trigger: str
    reason: str | None

    @classmethod
    def from_dict(cls, form: Mapping[str, Any]) -> FeedEntry:
        """From a feed document; its time has microseconds.  Raises KeyError, ValueError."""
        return cls(
            form["position"],
            wall_ns(form["time"]),
            form["run_id"],
            form["attempt"],
            RunState(form["state"]),
            form["trigger"],
            form["reason"],
        )


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
    return {name: form[name] for name in (*names, "outcome", "reason", "collected_at", "imported")}
