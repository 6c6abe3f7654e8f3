"""What each row of the table says: builders of verdicts, pure like the table itself."""

from __future__ import annotations

from collections.abc import Callable

from ..model.events import Kind
from ..model.outcome import STOP_OUTCOMES, Outcome, OutcomeKind, natural
from ..model.states import RunState
from ..process.locks import LockState
from .facts import JsonDict, LogStatus, Observation, Reason, Verdict, VerdictKind

_MAX_DAMAGE_TOLD = 8
_PROGRESS = (RunState.QUEUED, RunState.STARTING, RunState.RUNNING, RunState.STOPPING)
LAST_WORDS = {
    Kind.RUN_NOT_STARTED: VerdictKind.NOT_STARTED,
    Kind.RUN_UNKNOWN: VerdictKind.UNKNOWN,
}
_STATES = {
    VerdictKind.FINISHED: RunState.FINISHED,
    VerdictKind.NOT_STARTED: RunState.NOT_STARTED,
    VerdictKind.UNKNOWN: RunState.UNKNOWN,
    VerdictKind.QUARANTINED: RunState.QUARANTINED,
}


def _verdict(kind: VerdictKind, row: int, seen: Observation, reason: str) -> Verdict:
    """A verdict that writes; not_started is retryable unless its owner had stopped it."""
    return Verdict(
        kind=kind,
        row=row,
        state=_STATES[kind],
        reason=reason,
        evidence=_evidence(row, seen, kind),
        retryable=kind is VerdictKind.NOT_STARTED and not _stopped_by_owner(seen),
        log_health=health(seen),
    )


def always(kind: VerdictKind, reason: Reason) -> Callable[[int, Observation], Verdict]:
    return lambda row, seen: _verdict(kind, row, seen, reason.value)


def keep(row: int, seen: Observation) -> Verdict:
    kept = VerdictKind.KEPT
    reason = Reason.SETTLED.value
    return Verdict(kind=kept, row=row, state=seen.state, reason=reason, evidence={}, log_health=health(seen))


def reattach(row: int, seen: Observation) -> Verdict:
    return Verdict(
        kind=VerdictKind.REATTACH,
        row=row,
        state=_logged_state(seen),
        reason=Reason.WORKER_ALIVE.value,
        evidence=_evidence(row, seen, VerdictKind.REATTACH),
        log_health=health(seen),
    )


def last_word(row: int, seen: Observation) -> Verdict:
    if seen.receipt is not None:
        return _from_receipt(row, seen, seen.receipt)
    assert seen.last_word is not None  # noqa: S101  (what `_has_last_word` said)
    event, detail = seen.last_word
    reason = detail.get("reason")
    kind = LAST_WORDS[event]
    return _verdict(kind, row, seen, reason if isinstance(reason, str) else Reason.LOGGED.value)


def _from_receipt(row: int, seen: Observation, receipt: JsonDict) -> Verdict:
    outcome = _outcome(receipt.get("outcome"))
    if outcome is None:  # written by something newer or broken: it says "ended", but not how
        return _verdict(VerdictKind.QUARANTINED, row, seen, Reason.RECEIPT_UNREADABLE.value)
    kind, reason = VerdictKind.FINISHED, Reason.LOGGED
    unconfirmed = receipt.get("cleanup_confirmed") is False and not receipt.get("incomplete")
    if unconfirmed and seen.same_boot:  # a reboot ended the rest
        kind, reason = VerdictKind.QUARANTINED, Reason.CLEANUP_UNCONFIRMED
    return _with_end(_verdict(kind, row, seen, reason.value), outcome, receipt)


def from_exit(row: int, seen: Observation) -> Verdict:
    exited = seen.exited or {}
    end = {"code": exited.get("code"), "signal": exited.get("signal")}
    outcome = _outcome({"kind": _stop_kind(seen), **end}) or _outcome({"kind": "exited", **end})
    if outcome is None:
        return _verdict(VerdictKind.QUARANTINED, row, seen, Reason.EXIT_UNREADABLE.value)
    if outcome.kind is OutcomeKind.EXITED:
        outcome = natural(outcome.code, outcome.signal)
    receipt: JsonDict = {
        "attempt": seen.attempt,
        "outcome": outcome.to_dict(),
        "exit": end,
        "rusage": exited.get("rusage"),
        "survivors": [],
        "stop": seen.stopping,
        "incomplete": True,
        **({} if seen.enforcement is None else {"enforcement": seen.enforcement}),
        "cleanup_confirmed": False,
    }
    verdict = _verdict(VerdictKind.FINISHED, row, seen, Reason.EXIT_LOGGED.value)
    return _with_end(verdict, outcome, receipt)


def unsynced(row: int, seen: Observation) -> Verdict:
    """What there is of its end would not outlive a power loss; the owner's journal may give it that."""
    return _verdict(VerdictKind.QUARANTINED, row, seen, Reason.LOG_UNSYNCED.value)


def log_lost(row: int, seen: Observation) -> Verdict:
    kind = VerdictKind.QUARANTINED if seen.same_boot else VerdictKind.UNKNOWN
    return _verdict(kind, row, seen, _log_reason(seen).value)


def exec_refused(row: int, seen: Observation) -> Verdict:
    failure = seen.exec_failed or {}
    error = failure.get("error")
    reason = error if isinstance(error, str) and error else Reason.EXEC_FAILED.value
    if failure.get("step") == "worker":  # the error is none of the program's
        reason = Reason.NO_WORKER.value
    return _verdict(VerdictKind.NOT_STARTED, row, seen, reason)


def program_gone(row: int, seen: Observation) -> Verdict:
    reused = seen.program is not None and seen.program.now is not None
    reason = Reason.IDENTITY_MISMATCH if reused else Reason.WORKER_LOST
    return _verdict(VerdictKind.UNKNOWN, row, seen, reason.value)


def anything_else(row: int, seen: Observation) -> Verdict:
    if not seen.released:
        reason = Reason.RELEASE_UNPROVEN
    elif seen.program is None:
        reason = Reason.PROGRAM_NOT_LOGGED
    else:
        reason = Reason.PROGRAM_UNPROVABLE
    return _verdict(VerdictKind.QUARANTINED, row, seen, reason.value)


# --- helpers of the builders ---


def _with_end(verdict: Verdict, outcome: Outcome, receipt: JsonDict) -> Verdict:
    return verdict._replace(outcome=outcome, receipt=receipt)


def _outcome(form: object) -> Outcome | None:
    try:
        return Outcome.from_dict(form) if isinstance(form, dict) else None
    except ValueError:
        return None


def _stop_kind(seen: Observation) -> str:
    reason = (seen.stopping or {}).get("reason")
    kind = STOP_OUTCOMES.get(reason) if isinstance(reason, str) else None
    return OutcomeKind.EXITED.value if kind is None else kind.value


def _stopped_by_owner(seen: Observation) -> bool:
    return seen.stop_requested or (seen.stopping or {}).get("reason") == "stop"


def _logged_state(seen: Observation) -> RunState:
    """The furthest of what journal and log say; a quarantined run only leaves by a settling verdict."""
    if seen.state not in _PROGRESS:
        return seen.state
    logged = RunState.QUEUED if seen.worker is None or seen.waiting else RunState.STARTING
    if seen.released:
        logged = RunState.RUNNING
    if seen.stopping is not None:
        logged = RunState.STOPPING
    return max(seen.state, logged, key=_PROGRESS.index)


_LOG_REASONS = {
    LogStatus.MISSING: Reason.LOG_MISSING,
    LogStatus.NOT_REGULAR: Reason.LOG_NOT_REGULAR,
    LogStatus.FOREIGN: Reason.LOG_FOREIGN,
    LogStatus.UNREADABLE: Reason.LOG_UNREADABLE,
    LogStatus.EMPTY: Reason.LOG_EMPTY,
}
NO_LOCK_ANSWER = {LockState.MISSING: Reason.LOG_MISSING, LockState.UNREADABLE: Reason.LOCK_UNREADABLE}


def _log_reason(seen: Observation) -> Reason:
    if seen.log in _LOG_REASONS:
        return _LOG_REASONS[seen.log]
    return NO_LOCK_ANSWER.get(seen.lock, Reason.LOG_CORRUPT)


def health(seen: Observation) -> JsonDict | None:
    """What is wrong with the log, or None; a torn tail of an open log is not a fault yet."""
    if seen.log in _LOG_REASONS:
        return {"status": seen.log.value}
    damage = [entry for entry in seen.damage if entry.get("class") != "torn_tail"]
    if not damage:
        return None
    return {"status": "damaged", "damage": damage[:_MAX_DAMAGE_TOLD], "places": len(damage)}


def _may_be_alive(seen: Observation, kind: VerdictKind) -> bool:
    """Descendants may outlive the leader; only a reboot, or waitid's ECHILD, surely ended them all."""
    confirmed = seen.receipt is not None and seen.receipt.get("cleanup_confirmed") is True
    return seen.same_boot and kind is not VerdictKind.NOT_STARTED and not confirmed


def _evidence(row: int, seen: Observation, kind: VerdictKind) -> JsonDict:
    """The facts a person needs to check the verdict; JSON values only."""
    evidence: JsonDict = {
        "row": row,
        "lock": seen.lock.value,
        "log": seen.log.value,
        "same_boot": seen.same_boot,
        "released": seen.released,
        "may_be_alive": _may_be_alive(seen, kind),
    }
    if not seen.same_boot:
        evidence["intent_boot_id"] = seen.intent_boot_id
    for name, sighting in (("worker", seen.worker), ("program", seen.program)):
        evidence[name] = None if sighting is None else sighting.to_dict()
    for key in ("exec_failed", "exited", "stopping"):
        if (fact := getattr(seen, key)) is not None:
            evidence[key] = fact
    if seen.damage:
        evidence["damage"] = list(seen.damage[:_MAX_DAMAGE_TOLD])
    if seen.crash_text:
        evidence["crash_text"] = seen.crash_text
    return evidence
