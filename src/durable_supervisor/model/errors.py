"""The one error root, and every stable code an error can carry.

Code branches on ``error.code``; people read ``message`` and ``hint``.  A message
never holds a secret, an environment value or another caller's data.
"""

from __future__ import annotations

from enum import StrEnum


class ErrorCode(StrEnum):
    """Stable names; each one is documented in ``docs/errors.md`` and has a test."""

    INVALID_REQUEST = "INVALID_REQUEST"
    IDEMPOTENCY_CONFLICT = "IDEMPOTENCY_CONFLICT"
    IMPORT_CONFLICT = "IMPORT_CONFLICT"
    UNKNOWN_RUN = "UNKNOWN_RUN"
    RUN_COLLECTED = "RUN_COLLECTED"
    AMBIGUOUS_RUN = "AMBIGUOUS_RUN"
    NOT_STARTED = "NOT_STARTED"
    OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"
    WAIT_TIMEOUT = "WAIT_TIMEOUT"
    CURSOR_AHEAD = "CURSOR_AHEAD"
    NOT_CONFIRMED = "NOT_CONFIRMED"
    NOT_RUNNING = "NOT_RUNNING"
    STDIN_CLOSED = "STDIN_CLOSED"
    NOT_RESOLVABLE = "NOT_RESOLVABLE"
    SUPERVISOR_CLOSED = "SUPERVISOR_CLOSED"
    FORKED_COPY = "FORKED_COPY"
    STATE_DIR_IN_USE = "STATE_DIR_IN_USE"
    STATE_DIR_REFUSED = "STATE_DIR_REFUSED"
    NO_SPACE = "NO_SPACE"
    JOURNAL_MISSING = "JOURNAL_MISSING"
    JOURNAL_BEHIND = "JOURNAL_BEHIND"
    JOURNAL_MISMATCH = "JOURNAL_MISMATCH"
    JOURNAL_NEWER = "JOURNAL_NEWER"
    JOURNAL_CORRUPT = "JOURNAL_CORRUPT"
    JOURNAL_IO = "JOURNAL_IO"
    BUSY = "BUSY"
    CAPACITY_EXHAUSTED = "CAPACITY_EXHAUSTED"
    ENFORCEMENT_REFUSED = "ENFORCEMENT_REFUSED"
    RUN_FAILED = "RUN_FAILED"
    WRITER_BUSY = "WRITER_BUSY"
    PEER_DENIED = "PEER_DENIED"
    OWNER_MISMATCH = "OWNER_MISMATCH"
    UNSUPPORTED_API_VERSION = "UNSUPPORTED_API_VERSION"
    FRAME_TOO_LARGE = "FRAME_TOO_LARGE"
    SHUTTING_DOWN = "SHUTTING_DOWN"
    SERVICE_UNAVAILABLE = "SERVICE_UNAVAILABLE"
    SUBMISSION_INDETERMINATE = "SUBMISSION_INDETERMINATE"
    SOCKET_IN_USE = "SOCKET_IN_USE"
    UNSUPPORTED_PLATFORM = "UNSUPPORTED_PLATFORM"
    EXTRA_MISSING = "EXTRA_MISSING"
    INTERNAL = "INTERNAL"


class Phase(StrEnum):
    """How far the request had come when the error was raised."""

    VALIDATE = "validate"
    OPEN = "open"
    ADMIT = "admit"
    DISPATCH = "dispatch"
    RUN = "run"
    READ = "read"
    CONTROL = "control"
    CONNECT = "connect"


class SupervisorError(Exception):
    """Every failure the product reports.

    ``retryable`` is true only when sending the same call again is safe and may
    succeed.  ``details`` holds JSON-able facts (run id, differing field names,
    owner pid, errno); never a value the caller marked as secret.
    """

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        *,
        phase: Phase = Phase.RUN,
        retryable: bool = False,
        hint: str = "",
        details: dict[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.phase = phase
        self.retryable = retryable
        self.hint = hint
        self.details: dict[str, object] = dict(details or {})

    @property
    def executable(self) -> str | None:
        """The program that was asked for, where the error is about one."""
        return _text(self.details.get("executable"))

    @property
    def termination(self) -> dict[str, object] | None:
        """How the program ended, as `Outcome.to_dict`, where that is known."""
        termination = self.details.get("termination")
        return termination if isinstance(termination, dict) else None

    @property
    def stderr_tail(self) -> str | None:
        """The last that the program said on stderr, secrets redacted, where there is any."""
        return _text(self.details.get("stderr_tail"))

    def __str__(self) -> str:
        return f"{self.code.value}: {self.message}"

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (self.code, self.message, self.phase, self.retryable, self.hint, self.details))

    def to_dict(self) -> dict[str, object]:
        """The JSON form: ``{"code", "message", "phase", "retryable", "hint", "details"}``."""
        return {
            "code": self.code.value,
            "message": self.message,
            "phase": self.phase.value,
            "retryable": self.retryable,
            "hint": self.hint,
            "details": self.details,
        }

    @classmethod
    def from_dict(cls, form: dict[str, object]) -> SupervisorError:
        """From its JSON form; a code or phase of a newer version reads as ``INTERNAL``, ``run``."""
        code, phase, details = str(form["code"]), str(form["phase"]), form["details"]
        return cls(
            ErrorCode(code) if code in ErrorCode._value2member_map_ else ErrorCode.INTERNAL,
            str(form["message"]),
            phase=Phase(phase) if phase in Phase._value2member_map_ else Phase.RUN,
            retryable=form["retryable"] is True,
            hint=str(form["hint"]),
            details=details if isinstance(details, dict) else {},
        )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _rebuild(
    code: ErrorCode, message: str, phase: Phase, retryable: bool, hint: str, details: dict[str, object]
) -> SupervisorError:
    return SupervisorError(code, message, phase=phase, retryable=retryable, hint=hint, details=details)


def invalid(field: str, problem: str, hint: str = "") -> SupervisorError:
    """An ``INVALID_REQUEST`` that names the field at fault, never its value."""
    return SupervisorError(
        ErrorCode.INVALID_REQUEST,
        f"{field}: {problem}",
        phase=Phase.VALIDATE,
        hint=hint or default_hint(field),
        details={"field": field},
    )


def default_hint(field: str) -> str:
    """Where the problem itself says what to do."""
    return f"correct {field} and send the request again"


def unknown_run(run_id: str) -> SupervisorError:
    """``UNKNOWN_RUN``, naming the id: as much of it as a request id has, which it may be by mistake."""
    return SupervisorError(
        ErrorCode.UNKNOWN_RUN,
        f"no run {run_id[:64]!a} in this state directory",
        phase=Phase.READ,
        hint="`durable-supervisor list` shows the runs of this state directory",
        details={"run_id": run_id[:128]},
    )


def run_collected(run_id: str, state: str, outcome: dict[str, object] | None) -> SupervisorError:
    """``RUN_COLLECTED``, with what is still known of the run."""
    return SupervisorError(
        ErrorCode.RUN_COLLECTED,
        f"the log of run {run_id} was collected; how it ended is still known",
        phase=Phase.READ,
        hint=f"`durable-supervisor inspect {run_id}` shows what is left of it",
        details={"run_id": run_id, "state": state, "outcome": outcome},
    )


def enforcement_refused(axis: str, reason: str) -> SupervisorError:
    """``ENFORCEMENT_REFUSED``: the axis is required, and cannot be had as asked."""
    return SupervisorError(
        ErrorCode.ENFORCEMENT_REFUSED,
        f"{axis} cannot be enforced as required: {reason}",
        phase=Phase.ADMIT,
        hint=f"`durable-supervisor capabilities` shows what this machine can do; or make {axis} best_effort",
        details={"axis": axis, "reason": reason},
    )
