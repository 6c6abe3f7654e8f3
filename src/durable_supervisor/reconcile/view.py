"""A run as a reader sees it: its row, overlaid with what the evidence says now.

Nothing is written, so readers tell the truth with no supervisor alive, and
beside one that has not folded the newest evidence yet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..journal.rows import RunRow
from ..model.events import iso_time
from ..model.outcome import Outcome
from ..model.schema import schema_name
from ..model.states import JUDGED_STATES, RunState
from .build import health
from .decide import decide
from .facts import JsonDict, Observation, Verdict, VerdictKind
from .observe import Place, look, observe


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One run.  Times are Unix nanoseconds.

    ``outcome`` is set for a finished run, and beside quarantined(cleanup_unconfirmed).
    ``worker`` and ``program`` are identities as logged.  ``head`` is the last seq of
    its log (0 when the log was not looked at); ``live`` are figures of the running tree.
    """

    id: str
    state: RunState
    request_id: str
    owner: str
    attempt: int
    argv: tuple[str, ...]
    cwd: str
    labels: dict[str, str]
    limits: JsonDict
    completion: str
    created_ns: int
    updated_ns: int
    outcome: Outcome | None
    program: JsonDict | None
    worker: JsonDict | None
    receipt: JsonDict | None
    reason: str | None
    evidence: JsonDict | None
    resolution: JsonDict | None
    retryable: bool
    log_health: JsonDict | None
    nested_in: str | None
    survives_unit_restart: bool | None
    serial: int
    head: int = 0
    live: JsonDict | None = None

    @property
    def run_id(self) -> str:
        """The same as ``id``, under the name that documents use."""
        return self.id

    def to_dict(self) -> JsonDict:
        """The inspect document: see ``docs/schemas``."""
        return {
            "schema": schema_name("inspect"),
            "run_id": self.id,
            "state": self.state.value,
            "request_id": self.request_id,
            "owner": self.owner,
            "attempt": self.attempt,
            "argv": list(self.argv),
            "cwd": self.cwd,
            "labels": self.labels,
            "limits": self.limits,
            "completion": self.completion,
            "created_at": iso_time(self.created_ns),
            "updated_at": iso_time(self.updated_ns),
            "outcome": None if self.outcome is None else self.outcome.to_dict(),
            "program": self.program,
            "worker": self.worker,
            "receipt": self.receipt,
            "reason": self.reason,
            "evidence": self.evidence,
            "resolution": self.resolution,
            "retryable": self.retryable,
            "log_health": self.log_health,
            "head": self.head,
            "live": self.live,
            "nested_in": self.nested_in,
            "survives_unit_restart": self.survives_unit_restart,
        }


def view(row: RunRow, place: Place, *, check_log: bool = False) -> RunView:
    """The run as it is now.  Reads its log (blocking, up to some 0.3 s) while it is not settled.

    ``check_log``: also read the log of a settled run, for ``head`` and ``log_health``
    (some 0.1 s where it holds 100 MiB).
    """
    plain = of_row(row)
    if row.state in JUDGED_STATES:
        seen = observe(row, place)
        return _overlaid(plain, seen, decide(seen))
    if not check_log:
        return plain
    seen = look(row, place)
    found = health(seen)
    if found is None and row.receipt is not None and seen.receipt is None:
        found = {"status": "cut_short"}  # whole records, but not the last: a tail or later segments are gone
    return replace(_with_log(plain, seen), log_health=plain.log_health if found is None else found)


def of_row(row: RunRow) -> RunView:
    """What the journal alone says."""
    return RunView(
        id=row.run_id,
        state=row.state,
        request_id=row.request_id,
        owner=row.owner,
        attempt=row.attempt,
        argv=tuple(row.argv),
        cwd=row.cwd,
        labels=row.labels,
        limits=row.limits,
        completion=row.completion,
        created_ns=row.created_ns,
        updated_ns=row.updated_ns,
        outcome=None if row.outcome is None else Outcome.from_dict(row.outcome),
        program=row.program,
        worker=row.worker,
        receipt=row.receipt,
        reason=row.reason,
        evidence=row.evidence,
        resolution=row.resolution,
        retryable=row.may_retry,
        log_health=row.log_health,
        nested_in=row.nested_in,
        survives_unit_restart=row.survives_unit_restart,
        serial=row.serial,
    )


def _overlaid(plain: RunView, seen: Observation, verdict: Verdict) -> RunView:
    known = _with_log(plain, seen)
    known = replace(known, log_health=verdict.log_health or plain.log_health)
    if verdict.kind is VerdictKind.REATTACH:
        return replace(known, state=verdict.state)
    return replace(
        known,
        state=verdict.state,
        reason=verdict.reason,
        outcome=verdict.outcome,
        receipt=verdict.receipt,
        evidence=verdict.evidence,
        retryable=verdict.retryable,
    )


def _with_log(plain: RunView, seen: Observation) -> RunView:
    worker = plain.worker if seen.worker is None else seen.worker.identity.to_dict()
    program = plain.program if seen.program is None else seen.program.identity.to_dict()
    return replace(plain, worker=worker, program=program, head=seen.head)
