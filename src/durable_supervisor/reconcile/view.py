"""A run as a reader sees it: its row, overlaid with what the evidence says now.

Nothing is written, so readers tell the truth with no supervisor alive, and
beside one that has not folded the newest evidence yet.
"""

from __future__ import annotations

from typing import Any

from ..journal.rows import RunRow
from ..model.axis import all_axes
from ..model.states import JUDGED_STATES
from ..model.view import RunView
from ..runlog.durable import make_durable
from ..runlog.paths import RunPaths
from .build import health, unsynced
from .decide import decide
from .facts import Observation, Verdict, VerdictKind
from .observe import Place, look, observe


def view(row: RunRow, place: Place, *, check_log: bool = False) -> RunView:
    """The run as it is now.  Reads its log (blocking, up to some 0.3 s) while it is not settled.

    ``check_log``: also read the log of a settled run, for ``head`` and ``log_health``
    (some 0.1 s where it holds 100 MiB).
    """
    if row.state in JUDGED_STATES:
        seen = observe(row, place)
        return overlaid(row, seen, _lasting(seen, place.paths(row)))
    if not check_log or row.collected:
        return of_row(row)
    seen = look(row, place)
    found = health(seen)
    if found is None and row.receipt is not None and seen.receipt is None:
        found = {"status": "cut_short"}  # whole records, but not the last: a tail or later segments are gone
    told = _told_by_journal(row) | _told_by_log(row, seen)
    return RunView(**told | {"log_health": row.log_health if found is None else found})


def of_row(row: RunRow) -> RunView:
    """What the journal alone says."""
    return RunView(**_told_by_journal(row))


def _told_by_journal(row: RunRow) -> dict[str, Any]:
    """Fields of the view, by name."""
    return {
        "id": row.run_id,
        "state": row.state,
        "request_id": row.request_id,
        "owner": row.owner,
        "attempt": row.attempt,
        "argv": tuple(row.argv),
        "cwd": row.cwd,
        "labels": row.labels,
        "limits": row.limits,
        "completion": row.completion,
        "created_ns": row.created_ns,
        "updated_ns": row.updated_ns,
        "outcome": row.how_it_ended,
        "program": row.program,
        "worker": row.worker,
        "receipt": shown_receipt(row.receipt),
        "reason": row.reason,
        "evidence": row.evidence,
        "resolution": row.resolution,
        "retryable": row.may_retry,
        "log_health": row.log_health,
        "nested_in": row.nested_in,
        "survives_unit_restart": row.survives_unit_restart,
        "serial": row.serial,
        "collected_ns": row.collected_ns,
    }


def _lasting(seen: Observation, paths: RunPaths) -> Verdict:
    """The verdict as a reader may tell it: an end that was told once must still be so after a power loss.

    An owner writes what it concludes into log and journal, durably, before anybody hears of it.  A reader
    writes nothing: it brings the evidence to the disk, and where it cannot, it tells of no end.
    """
    verdict = decide(seen)
    ends = verdict.outcome is not None or verdict.kind in (VerdictKind.FINISHED, VerdictKind.NOT_STARTED)
    if ends and not seen.synced and not make_durable(paths, seen.attempt):
        return unsynced(verdict.row, seen)
    return verdict


def overlaid(row: RunRow, seen: Observation, verdict: Verdict) -> RunView:
    """What the journal and the log say together, as of one look."""
    # One view is made, and no copy of another: each costs as much as half of reading a short log.
    told = _told_by_journal(row) | _told_by_log(row, seen)
    told |= {"state": verdict.state, "log_health": verdict.log_health or row.log_health}
    if verdict.kind is not VerdictKind.REATTACH:
        told |= {
            "reason": verdict.reason,
            "outcome": verdict.outcome,
            "receipt": shown_receipt(verdict.receipt),
            "evidence": verdict.evidence,
            "retryable": verdict.retryable,
        }
    return RunView(**told)


def _told_by_log(row: RunRow, seen: Observation) -> dict[str, Any]:
    """The same."""
    worker = row.worker if seen.worker is None else seen.worker.identity.to_dict()
    program = row.program if seen.program is None else seen.program.identity.to_dict()
    asked = seen.asked
    return {
        "worker": worker,
        "program": program,
        "head": seen.told_head,
        "stdin": _text(asked.get("stdin")),
        "pty": _object(asked.get("pty")),
        "policy": _object(asked.get("policy")),
        "lifetime": _text(asked.get("lifetime")),
        "enforcement": seen.enforcement,
    }


def shown_receipt(told: dict[str, object] | None) -> dict[str, object] | None:
    """With every axis of its report; receipts of older workers, and of lost ones, have none."""
    report = None if told is None else _object(told.get("enforcement"))
    return {**told, "enforcement": all_axes(report)} if told is not None and report else told


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _object(value: object) -> dict[str, object] | None:
    return value if isinstance(value, dict) else None
