"""Run states, what can happen to a run, and the whole transition table.

The table is data: every (state, trigger) cell is filled.  The journal repeats
it as a guard in SQL, so a bug in a caller cannot rewrite a settled fact.
"""

from __future__ import annotations

from enum import StrEnum


class RunState(StrEnum):
    QUEUED = "queued"  # accepted, provably not dispatched yet
    STARTING = "starting"  # intent durable; user code may be released at any moment
    RUNNING = "running"  # user code was released
    STOPPING = "stopping"  # the stop ladder has begun
    FINISHED = "finished"  # has an outcome, from evidence
    NOT_STARTED = "not_started"  # proof that user code never ran
    UNKNOWN = "unknown"  # user code may have run; its end cannot be known
    QUARANTINED = "quarantined"  # something of it may be alive, or its evidence is unreadable


OPEN_STATES = frozenset({RunState.QUEUED, RunState.STARTING, RunState.RUNNING, RunState.STOPPING})
SETTLED_STATES = frozenset({RunState.FINISHED, RunState.NOT_STARTED, RunState.UNKNOWN})
# Judged anew on every pass: open runs and quarantined ones.
JUDGED_STATES = OPEN_STATES | {RunState.QUARANTINED}


class Trigger(StrEnum):
    DISPATCH = "dispatch"  # a queued run gets its slot
    RELEASE = "release"  # the log says user code was released
    STOP = "stop"  # the log says the stop ladder has begun
    FINISH = "finish"  # evidence of how it ended
    REFUSE = "refuse"  # proof that user code never ran
    LOSE = "lose"  # evidence that its end cannot be known
    QUARANTINE = "quarantine"  # evidence missing, or something may be alive
    RETRY = "retry"  # the same request again, after a proven not_started
    REQUEUE = "requeue"  # the same, while there is no slot for it
    RESOLVE = "resolve"  # an operator's word on a quarantined run


class Rule(StrEnum):
    """What a cell of the table says when it is not a new state."""

    SAME = "same"  # already so: no write, no error
    REFUSED = "refused"  # would rewrite a fact or skip proof


_S, _T, _R = RunState, Trigger, Rule

# Rows: state.  Columns: DISPATCH RELEASE STOP FINISH REFUSE LOSE QUARANTINE RETRY REQUEUE RESOLVE.
_ROWS: dict[RunState, tuple[RunState | Rule, ...]] = {
    _S.QUEUED: (
        _S.STARTING, _S.RUNNING, _S.STOPPING, _S.FINISHED, _S.NOT_STARTED, _S.UNKNOWN, _S.QUARANTINED,
        _R.REFUSED, _R.REFUSED, _R.REFUSED,
    ),
    _S.STARTING: (
        _R.SAME, _S.RUNNING, _S.STOPPING, _S.FINISHED, _S.NOT_STARTED, _S.UNKNOWN, _S.QUARANTINED,
        _R.REFUSED, _R.REFUSED, _R.REFUSED,
    ),
    _S.RUNNING: (
        _R.REFUSED, _R.SAME, _S.STOPPING, _S.FINISHED, _S.NOT_STARTED, _S.UNKNOWN, _S.QUARANTINED,
        _R.REFUSED, _R.REFUSED, _R.REFUSED,
    ),
    _S.STOPPING: (
        _R.REFUSED, _R.REFUSED, _R.SAME, _S.FINISHED, _S.NOT_STARTED, _S.UNKNOWN, _S.QUARANTINED,
        _R.REFUSED, _R.REFUSED, _R.REFUSED,
    ),
    _S.QUARANTINED: (
        _R.REFUSED, _R.REFUSED, _R.REFUSED, _S.FINISHED, _S.NOT_STARTED, _S.UNKNOWN, _S.QUARANTINED,
        _R.REFUSED, _R.REFUSED, _S.UNKNOWN,
    ),
    _S.FINISHED: (_R.REFUSED,) * 10,
    _S.NOT_STARTED: (
        _R.REFUSED, _R.REFUSED, _R.REFUSED, _R.REFUSED, _R.REFUSED, _R.REFUSED, _R.REFUSED,
        _S.STARTING, _S.QUEUED, _R.REFUSED,
    ),
    _S.UNKNOWN: (_R.REFUSED,) * 10,
}  # fmt: skip

TRANSITIONS: dict[tuple[RunState, Trigger], RunState | Rule] = {
    (state, trigger): cell for state, row in _ROWS.items() for trigger, cell in zip(Trigger, row, strict=True)
}


def next_state(state: RunState, trigger: Trigger) -> RunState | Rule:
    """The cell of the table.  Total: never raises for members of the enums."""
    return TRANSITIONS[(state, trigger)]
