"""How a finished run ended: a kind, and the exit code or signal as waitid gave it."""

from __future__ import annotations

from enum import StrEnum


class OutcomeKind(StrEnum):
    EXITED = "exited"
    SIGNALED = "signaled"
    TIMED_OUT = "timed_out"
    IDLE_TIMED_OUT = "idle_timed_out"
    CANCELLED = "cancelled"
    STDOUT_LIMIT_EXCEEDED = "stdout_limit_exceeded"
    STDERR_LIMIT_EXCEEDED = "stderr_limit_exceeded"
    OUT_OF_MEMORY = "out_of_memory"


# Why the worker began the stop ladder (``run.stopping``) -> the outcome of the run.
STOP_OUTCOMES = {
    "stop": OutcomeKind.CANCELLED,
    "worker_terminated": OutcomeKind.CANCELLED,
    "timeout": OutcomeKind.TIMED_OUT,
    "idle_timeout": OutcomeKind.IDLE_TIMED_OUT,
    "stdout_limit": OutcomeKind.STDOUT_LIMIT_EXCEEDED,
    "stderr_limit": OutcomeKind.STDERR_LIMIT_EXCEEDED,
    "out_of_memory": OutcomeKind.OUT_OF_MEMORY,
    "cpu_time": OutcomeKind.TIMED_OUT,  # of another clock: the stop's reason tells which
    "host_gone": OutcomeKind.CANCELLED,
}


class Outcome:
    """``kind`` says why it ended; exactly one of ``code`` and ``signal`` says how.

    A cancelled program that saved its work and left with 0 is
    ``Outcome(CANCELLED, code=0)``: the reason never hides the exit code.
    """

    __slots__ = ("code", "kind", "signal")

    def __init__(self, kind: OutcomeKind, code: int | None = None, signal: int | None = None) -> None:
        if (code is None) == (signal is None):
            raise ValueError("an outcome has either an exit code or a signal")
        self.kind = kind
        self.code = code
        self.signal = signal

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Outcome) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.kind, self.code, self.signal))

    def __repr__(self) -> str:
        how = f"code={self.code}" if self.signal is None else f"signal={self.signal}"
        return f"Outcome({self.kind.value}, {how})"

    def to_dict(self) -> dict[str, object]:
        """``{"kind": str, "code": int | None, "signal": int | None}``."""
        return {"kind": self.kind.value, "code": self.code, "signal": self.signal}

    @classmethod
    def from_dict(cls, data: dict[str, object]) -> Outcome:
        """The reverse of `to_dict`.  Raises ValueError on anything else."""
        code, signal = data.get("code"), data.get("signal")
        if not isinstance(code, int | None) or not isinstance(signal, int | None):
            raise ValueError("outcome: code and signal are integers or null")
        return cls(OutcomeKind(str(data.get("kind"))), code, signal)


def natural(code: int | None, signal: int | None) -> Outcome:
    """The outcome of a program that nobody stopped."""
    return Outcome(OutcomeKind.EXITED if signal is None else OutcomeKind.SIGNALED, code, signal)
