"""Carry a verdict out: a word in the run's log, then a compare-and-set in the journal.

Log first.  The word is written under the log's lock after the evidence was
found unchanged, so it cannot contradict a worker; a crash before the journal is
written is healed by the next pass, which takes the log's last word over.  The
other order would let a retry begin its attempt at a sequence number that the
late word then takes.  The journal stays the authority: where a word cannot be
written (no space, no permission, too many at once) the journal alone says it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING

from ..journal.advance import advance
from ..journal.errors import StaleState, TransitionRefused
from ..journal.rows import RunRow
from ..journal.runs import get, set_log_health
from ..model.errors import SupervisorError
from ..model.events import Kind
from ..model.named_tuple import NamedTuple
from ..model.states import RunState, Trigger
from ..process.clock import Clock
from ..process.failpoints import failpoint
from ..process.locks import LockState
from .facts import TRIGGERS, LogStatus, Observation, Verdict, VerdictKind
from .observe import Place

if TYPE_CHECKING:
    import sqlite3

    from ..journal.access import JournalAccess

_WORDS = {
    VerdictKind.FINISHED: Kind.RUN_FINISHED,
    VerdictKind.NOT_STARTED: Kind.RUN_NOT_STARTED,
    VerdictKind.UNKNOWN: Kind.RUN_UNKNOWN,
    VerdictKind.QUARANTINED: Kind.RUN_QUARANTINED,
}
_REATTACH = {
    RunState.STARTING: Trigger.DISPATCH,
    RunState.RUNNING: Trigger.RELEASE,
    RunState.STOPPING: Trigger.STOP,
}


class Judged(NamedTuple):
    """A run as the journal had it, what was seen of it, and what follows."""

    row: RunRow
    seen: Observation
    verdict: Verdict


class Spoken(Enum):
    SAID = "said"  # the word is durable in the log, or was there already
    SILENT = "silent"  # no word is due, or none can be written: the journal alone says it
    CHANGED = "changed"  # the evidence is no longer what the verdict rests on: judge anew


def is_news(judged: Judged) -> bool:
    """Does the verdict change anything in the journal?"""
    return _moves(judged) or _sickens(judged)


def _moves(judged: Judged) -> bool:
    row, verdict = judged.row, judged.verdict
    if verdict.kind is VerdictKind.KEPT:
        return False
    if verdict.state is not row.state:
        return True
    if verdict.kind is not VerdictKind.QUARANTINED:
        return False
    # Judged in every pass, written only when there is something new to say.
    return verdict.reason != row.reason or verdict.row != (row.evidence or {}).get("row")


def _sickens(judged: Judged) -> bool:
    """Newly found damage.  Health is never written back to good: a look does not read every byte."""
    found = judged.verdict.log_health
    return found is not None and found != judged.row.log_health


def owes_word(judged: Judged) -> bool:
    """Is the verdict one that the log does not have yet, and may the log be written?"""
    seen = judged.seen
    if judged.verdict.kind not in _WORDS or seen.receipt is not None or seen.last_word is not None:
        return False
    return seen.lock is LockState.FREE and seen.log is LogStatus.OK


def speak(judged: Judged, place: Place, clock: Clock) -> Spoken:
    """Write the verdict into the run's log, durably.  Blocking; never creates a log."""
    if not owes_word(judged):
        return Spoken.SILENT
    from .word import write_word  # what writes logs: hardly ever does one owe a word

    return write_word(judged, place, clock, _WORDS[judged.verdict.kind])


def clear_away(judged: Judged, place: Place) -> None:
    """Remove the socket of a worker that is gone, or may be killed between its last word and doing so itself.

    Only before the journal is told: after that a retry may make its own under the same name.
    """
    seen = judged.seen
    over = seen.lock is LockState.FREE or seen.last_word_counts
    if over and _moves(judged):
        try:
            os.unlink(place.paths(judged.row).socket)
        except OSError:  # as a rule the worker has removed it
            pass


async def fold(
    journal: JournalAccess, items: Sequence[Judged], clock: Clock, *, patient: bool = False
) -> list[RunRow]:
    """Write verdicts into the journal as one group commit; returns the rows as they are now.

    A row that moved on meanwhile keeps what it says.  A run whose write the SQL
    guards refuse harms only itself: it is left out, and judged anew at the next pass.
    ``patient``: as for `Journal.write`.
    Raises what the journal raises when it can take nothing (``BUSY``, ``NO_SPACE`` …).
    """
    now_ns = clock.wall_ns()
    durable = any(map(must_sync, items))
    failpoint("reconcile.before_fold")

    def settle(conn: sqlite3.Connection) -> list[RunRow]:
        rows = [_settle(conn, item, now_ns) for item in items]
        failpoint("reconcile.folding")
        return rows

    try:
        return await journal.write(settle, durable=durable, patient=patient)
    except SupervisorError:
        raise
    except Exception:  # noqa: BLE001  (a guard's refusal: find the run it is about)
        if len(items) == 1:
            return []
    half = len(items) // 2
    return await fold(journal, items[:half], clock) + await fold(journal, items[half:], clock)


def must_sync(judged: Judged) -> bool:
    """What a durable log says may follow later; a verdict of our own may not.

    A receipt whose writer was killed before it said so may not have reached the disk.  That a run has
    left the queue must not be forgotten either: of a queued one it is certain that it never ran.
    """
    if judged.verdict.kind is VerdictKind.REATTACH:
        return judged.row.state is RunState.QUEUED
    return judged.seen.receipt is None or not judged.seen.synced


def _settle(conn: sqlite3.Connection, judged: Judged, now_ns: int) -> RunRow:
    row, verdict = judged.row, judged.verdict
    if _moves(judged):
        try:
            row = _move(conn, judged, now_ns)
        except (StaleState, TransitionRefused):
            return get(conn, row.run_id) or row
    if _sickens(judged):
        row = set_log_health(conn, row.run_id, verdict.log_health, now_ns)
    return row


def _move(conn: sqlite3.Connection, judged: Judged, now_ns: int) -> RunRow:
    row, seen, verdict = judged.row, judged.seen, judged.verdict
    attached = verdict.kind is VerdictKind.REATTACH
    return advance(
        conn,
        row,
        _REATTACH[verdict.state] if attached else TRIGGERS[verdict.kind],
        now_ns,
        reason=None if attached else verdict.reason,
        outcome=verdict.outcome,
        receipt=verdict.receipt,
        evidence=None if attached else verdict.evidence,
        retryable=verdict.retryable,
        worker=None if seen.worker is None else seen.worker.identity.to_dict(),
        program=None if seen.program is None else seen.program.identity.to_dict(),
    )
