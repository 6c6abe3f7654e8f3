"""Exit codes: stable, documented in ``docs/cli.md`` and at the end of every ``--help``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from durable_supervisor.model.errors import ErrorCode

if TYPE_CHECKING:
    from durable_supervisor.model.outcome import Outcome
    from durable_supervisor.model.states import RunState

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
NO_SUCH_RUN: Final = 3
CONFLICT: Final = 4
REFUSED: Final = 5
OUTCOME_UNKNOWN: Final = 6
TIMEOUT: Final = 124  # as timeout(1)
INTERRUPTED: Final = 130  # 128 + SIGINT
BROKEN_PIPE: Final = 141  # 128 + SIGPIPE
TERMINATED: Final = 143  # 128 + SIGTERM
SIGNAL_BASE: Final = 128

HELP: Final = (
    "Exit codes: 0 ok; 1 anything else; 2 usage; 3 no such run, or its log is collected; 4 conflict;"
    " 5 refused; 6 outcome unknown or quarantined. 'run' and 'wait' give the program's own code, 128+signal"
    " where a signal ended it, and 124 for a timeout."
)

BY_CODE: Final[dict[ErrorCode, int]] = {
    ErrorCode.INVALID_REQUEST: USAGE,
    ErrorCode.AMBIGUOUS_RUN: USAGE,
    ErrorCode.UNKNOWN_RUN: NO_SUCH_RUN,
    ErrorCode.RUN_COLLECTED: NO_SUCH_RUN,
    ErrorCode.IDEMPOTENCY_CONFLICT: CONFLICT,
    ErrorCode.IMPORT_CONFLICT: CONFLICT,
    ErrorCode.OUTCOME_UNKNOWN: OUTCOME_UNKNOWN,
    ErrorCode.WAIT_TIMEOUT: TIMEOUT,
    ErrorCode.NOT_RUNNING: REFUSED,
    ErrorCode.STDIN_CLOSED: REFUSED,
    ErrorCode.NOT_RESOLVABLE: REFUSED,
    ErrorCode.STATE_DIR_IN_USE: REFUSED,
    ErrorCode.STATE_DIR_REFUSED: REFUSED,
    ErrorCode.NO_SPACE: REFUSED,
    ErrorCode.JOURNAL_MISSING: REFUSED,
    ErrorCode.JOURNAL_BEHIND: REFUSED,
    ErrorCode.JOURNAL_MISMATCH: REFUSED,
    ErrorCode.JOURNAL_NEWER: REFUSED,
    ErrorCode.JOURNAL_CORRUPT: REFUSED,
    ErrorCode.JOURNAL_IO: REFUSED,
    ErrorCode.UNSUPPORTED_PLATFORM: REFUSED,
    ErrorCode.EXTRA_MISSING: REFUSED,
    ErrorCode.BUSY: REFUSED,
    ErrorCode.CAPACITY_EXHAUSTED: REFUSED,
    ErrorCode.ENFORCEMENT_REFUSED: REFUSED,
    ErrorCode.WRITER_BUSY: REFUSED,
    ErrorCode.PEER_DENIED: REFUSED,
    ErrorCode.OWNER_MISMATCH: REFUSED,
    ErrorCode.UNSUPPORTED_API_VERSION: REFUSED,
    ErrorCode.FRAME_TOO_LARGE: USAGE,
    ErrorCode.SHUTTING_DOWN: REFUSED,
    ErrorCode.SERVICE_UNAVAILABLE: REFUSED,
    ErrorCode.SOCKET_IN_USE: REFUSED,
}


def of_error(code: ErrorCode) -> int:
    """The exit code of an error; 1 for every code that the table does not name."""
    return BY_CODE.get(code, FAILED)


def of_run(state: RunState, outcome: Outcome | None) -> int:
    """What ``run`` and ``wait`` leave with, from a run that is over or lost.

    A run that was stopped gives the code or signal it really ended with.
    """
    from durable_supervisor.model.outcome import OutcomeKind  # a start knows no end, and needs neither
    from durable_supervisor.model.states import RunState

    if state in (RunState.UNKNOWN, RunState.QUARANTINED):
        return OUTCOME_UNKNOWN
    if outcome is None:
        return FAILED
    if outcome.kind in (OutcomeKind.TIMED_OUT, OutcomeKind.IDLE_TIMED_OUT):
        return TIMEOUT
    if outcome.signal is not None:
        return SIGNAL_BASE + outcome.signal
    return FAILED if outcome.code is None else outcome.code & 0xFF
