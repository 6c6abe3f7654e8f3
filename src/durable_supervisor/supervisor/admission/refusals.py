"""What a supervisor does not do: its journal may miss request ids, it is going, or a run is not its own."""

from __future__ import annotations

from ...model.errors import ErrorCode, Phase, SupervisorError

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


def out_of_reach(run_id: str, code: ErrorCode) -> SupervisorError:
    """``code``, about a run that can only be read."""
    return SupervisorError(
        code,
        f"run {run_id} was imported: it is another directory's",
        phase=Phase.CONTROL,
        hint="it can be read here, nothing else; ask where it was started",
        details={"run_id": run_id},
    )
