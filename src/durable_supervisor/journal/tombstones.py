"""What is kept of a collected run outside the journal, so that a lost journal can be made anew."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ..model.outcome import Outcome
from ..model.states import RunState
from . import runs
from .rows import RunRow

if TYPE_CHECKING:
    from .recover import RecoveredRun  # loaded by whoever makes one: no start does

FORMAT = 1

_ANSWERED = (
    "serial", "shard", "owner", "request_id", "limits", "completion", "digests", "key_id", "nested_in",
    "survives_unit_restart", "priority", "state", "outcome", "retryable", "stop_requested",
)  # fmt: skip


class Tombstone(NamedTuple):
    """A run that is over, without its words: neither argv nor directory, environment or labels."""

    directory_id: str
    run: RecoveredRun
    collected_ns: int

    @classmethod
    def of(cls, conn: sqlite3.Connection, row: RunRow, directory_id: str, collected_ns: int) -> Tombstone:
        """Of a row that is over."""
        from .recover import RecoveredAttempt, RecoveredRun

        attempts = runs.attempts(conn, row.serial)
        ended_ns = attempts[-1].ended_ns if attempts else None
        return cls(
            directory_id,
            RecoveredRun(
                serial=row.serial,
                run_id=row.run_id,
                shard=row.shard,
                owner=row.owner,
                request_id=row.request_id,
                argv=(),
                cwd="",
                limits=row.limits,
                completion=row.completion,
                digests=row.digests,
                key_id=row.key_id,
                attempts=[
                    RecoveredAttempt(one.attempt, one.intent_ns, one.boot_id, one.first_seq)
                    for one in attempts
                ],
                nested_in=row.nested_in,
                survives_unit_restart=row.survives_unit_restart,
                priority=row.priority,
                state=row.state,
                reason=row.reason,
                outcome=row.how_it_ended,
                retryable=row.retryable,
                stop_requested=row.stop_requested,
                ended_ns=row.updated_ns if ended_ns is None else ended_ns,
            ),
            collected_ns,
        )

    def explains(self, row: RunRow | None) -> bool:
        """Does the journal say the same of the run, but perhaps not yet that it is collected?"""
        last = self.run.attempts[-1].attempt
        return row is not None and (row.state, row.attempt) == (self.run.state, last)

    def differs(self, other: Tombstone) -> bool:
        """Would a late repeat be answered otherwise?  Times and words may be those of a `recover`."""
        mine, its = self.run, other.run
        return any(getattr(mine, name) != getattr(its, name) for name in _ANSWERED)

    def to_dict(self) -> dict[str, object]:
        """Its line in ``collected.log``; times are Unix nanoseconds."""
        run = self.run
        return {
            "format": FORMAT,
            "directory_id": self.directory_id,
            "run_id": run.run_id,
            "serial": run.serial,
            "shard": run.shard,
            "owner": run.owner,
            "request_id": run.request_id,
            "limits": run.limits,
            "completion": run.completion,
            "digests": run.digests,
            "key_id": run.key_id,
            "attempts": [[one.attempt, one.intent_ns, one.boot_id, one.first_seq] for one in run.attempts],
            "nested_in": run.nested_in,
            "survives_unit_restart": run.survives_unit_restart,
            "priority": run.priority,
            "state": run.state.value,
            "reason": run.reason,
            "outcome": None if run.outcome is None else run.outcome.to_dict(),
            "retryable": run.retryable,
            "stop_requested": run.stop_requested,
            "ended_ns": run.ended_ns,
            "collected_ns": self.collected_ns,
        }

    @classmethod
    def from_dict(cls, form: Mapping[str, Any]) -> Tombstone:
        """From its line.  Raises KeyError, TypeError, ValueError."""
        names = (
            "serial", "run_id", "shard", "owner", "request_id", "limits", "completion", "digests", "key_id",
            "nested_in", "survives_unit_restart", "priority", "reason", "retryable", "stop_requested",
            "ended_ns",
        )  # fmt: skip
        from .recover import RecoveredAttempt, RecoveredRun

        outcome = form["outcome"]
        run = RecoveredRun(
            **{name: form[name] for name in names},
            argv=(),
            cwd="",
            attempts=[RecoveredAttempt(*one) for one in form["attempts"]],
            state=RunState(form["state"]),
            outcome=None if outcome is None else Outcome.from_dict(outcome),
        )
        if not run.attempts:
            raise ValueError("a run without an attempt")
        return cls(form["directory_id"], run, form["collected_ns"])
