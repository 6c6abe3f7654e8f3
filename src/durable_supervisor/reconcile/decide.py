"""The decision table: a pure function from an observation to a verdict.

Rows are data and ordered; the first that matches wins; the last matches always.
Two rules shape every row: an end is written only from evidence of it, and
``not_started`` only from proof that user code never ran.
"""

from __future__ import annotations

from collections.abc import Callable

from ..model.named_tuple import NamedTuple
from ..model.states import SETTLED_STATES, RunState
from ..process.identity import Liveness
from ..process.locks import LockState
from .build import (
    LAST_WORDS,
    NO_LOCK_ANSWER,
    always,
    anything_else,
    exec_refused,
    from_exit,
    keep,
    last_word,
    log_lost,
    program_gone,
    reattach,
)
from .facts import LogStatus, Observation, Reason, Sighting, Verdict, VerdictKind

# What lies in the log's place cannot speak for this run, whoever holds a lock on it.
_NOT_ITS_LOG = frozenset({LogStatus.MISSING, LogStatus.NOT_REGULAR, LogStatus.FOREIGN})


class Row(NamedTuple):
    """One line of the table: ``build`` is called only where ``matches`` said yes."""

    number: int
    name: str
    matches: Callable[[Observation], bool]
    build: Callable[[int, Observation], Verdict]


def decide(seen: Observation) -> Verdict:
    """The verdict of the first matching row.  Total: never raises, never returns nothing."""
    row = next(row for row in TABLE if row.matches(seen))
    return row.build(row.number, seen)


def _liveness(sighting: Sighting | None) -> Liveness | None:
    return None if sighting is None else sighting.liveness


def _has_last_word(seen: Observation) -> bool:
    known = seen.receipt is not None or (seen.last_word is not None and seen.last_word[0] in LAST_WORDS)
    return known and seen.last_word_counts and seen.log not in _NOT_ITS_LOG


def _lock_held(seen: Observation) -> bool:
    return seen.lock is LockState.HELD and seen.log not in _NOT_ITS_LOG


def _held_by_worker(seen: Observation) -> bool:
    # A worker that cannot be seen (another namespace) still holds its lock: that is proof enough.
    return _lock_held(seen) and _liveness(seen.worker) is not Liveness.GONE


def _log_unusable(seen: Observation) -> bool:
    # A damaged byte may hide anything, the release included.
    return seen.log is not LogStatus.OK or seen.corrupt or seen.lock in NO_LOCK_ANSWER


def _never_dispatched(seen: Observation) -> bool:
    """The journal commits the dispatch before the hand-over; nothing in the log may say otherwise."""
    not_taken_over = seen.worker is None or seen.waiting
    nothing_logged = not_taken_over and seen.program is None and seen.exited is None
    return seen.state is RunState.QUEUED and nothing_logged and not (seen.released or seen.exec_failed)


def _unreleased_proven(seen: Observation) -> bool:
    # An open gate would be in the log: it is logged before it opens, and process death
    # loses nothing of the page cache.  A program seen alive contradicts that.
    silent = not seen.released and seen.intact and seen.same_boot
    return silent and _liveness(seen.program) is not Liveness.ALIVE


def _released_and(liveness: Liveness) -> Callable[[Observation], bool]:
    return lambda seen: seen.released and _liveness(seen.program) is liveness


_Q, _U, _N = VerdictKind.QUARANTINED, VerdictKind.UNKNOWN, VerdictKind.NOT_STARTED

TABLE: tuple[Row, ...] = (
    Row(1, "settled", lambda seen: seen.state in SETTLED_STATES, keep),
    Row(2, "last word in the log", _has_last_word, last_word),
    Row(3, "lock held by the worker", _held_by_worker, reattach),
    Row(4, "lock held, worker gone", _lock_held, always(_Q, Reason.LOCK_LEAKED)),
    Row(5, "log unusable", _log_unusable, log_lost),
    Row(6, "never dispatched", _never_dispatched, always(_N, Reason.WORKER_LOST)),
    Row(7, "exit logged", lambda seen: seen.exited is not None, from_exit),
    Row(8, "exec failed", lambda seen: seen.exec_failed is not None, exec_refused),
    Row(9, "never released", _unreleased_proven, always(_N, Reason.WORKER_LOST)),
    Row(
        10,
        "no release logged, other boot",
        lambda seen: not seen.released and not seen.same_boot,
        always(_U, Reason.RELEASE_UNPROVEN),
    ),
    Row(11, "released, other boot", lambda seen: not seen.same_boot, always(_U, Reason.REBOOTED)),
    Row(12, "program alive", _released_and(Liveness.ALIVE), always(_Q, Reason.PROGRAM_ALIVE)),
    Row(13, "program gone", _released_and(Liveness.GONE), program_gone),
    Row(14, "anything else", lambda _seen: True, anything_else),
)
