"""Why a supervisor starts nothing: its journal may not know every request id, or it is going."""

from __future__ import annotations

from ..model.errors import ErrorCode, Phase, SupervisorError

RECOVER_HINT = "run `durable-supervisor recover`: it rebuilds the journal from the run logs"


def needs_recovery(code: ErrorCode, message: str) -> SupervisorError:
    """Reading works all the same; starting must wait for `recover`."""
    return SupervisorError(code, message, phase=Phase.OPEN, hint=RECOVER_HINT)


def starts_nothing_more() -> SupervisorError:
    """``SUPERVISOR_CLOSED``, of one that is about to be."""
    return SupervisorError(
        ErrorCode.SUPERVISOR_CLOSED,
        "it is shutting down and starts nothing more",
        phase=Phase.ADMIT,
        hint="open it again",
    )
