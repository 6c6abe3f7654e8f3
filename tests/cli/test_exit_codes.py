"""Exit codes are a promise."""

from __future__ import annotations

from pathlib import Path

import pytest

from durable_supervisor.cli.output import exit_codes
from durable_supervisor.model.errors import ErrorCode
from durable_supervisor.model.outcome import Outcome, OutcomeKind
from durable_supervisor.model.states import RunState

# What is deliberately "anything else".
_FAILED = {
    ErrorCode.NOT_STARTED,
    ErrorCode.RUN_FAILED,
    ErrorCode.CURSOR_AHEAD,
    ErrorCode.NOT_CONFIRMED,
    ErrorCode.SUPERVISOR_CLOSED,
    ErrorCode.FORKED_COPY,
    ErrorCode.SUBMISSION_INDETERMINATE,
    ErrorCode.INTERNAL,
}


def test_every_error_code_has_been_thought_of() -> None:
    assert set(exit_codes.BY_CODE) | _FAILED == set(ErrorCode)
    assert not set(exit_codes.BY_CODE) & _FAILED


@pytest.mark.parametrize(
    ("state", "outcome", "code"),
    [
        (RunState.FINISHED, Outcome(OutcomeKind.EXITED, code=0), 0),
        (RunState.FINISHED, Outcome(OutcomeKind.EXITED, code=7), 7),
        (RunState.FINISHED, Outcome(OutcomeKind.SIGNALED, signal=9), 137),
        (RunState.FINISHED, Outcome(OutcomeKind.TIMED_OUT, signal=15), 124),
        (RunState.FINISHED, Outcome(OutcomeKind.IDLE_TIMED_OUT, code=0), 124),
        (RunState.FINISHED, Outcome(OutcomeKind.CANCELLED, code=0), 0),
        (RunState.FINISHED, Outcome(OutcomeKind.CANCELLED, signal=15), 143),
        (RunState.FINISHED, Outcome(OutcomeKind.STDOUT_LIMIT_EXCEEDED, signal=15), 143),
        (RunState.NOT_STARTED, None, 1),
        (RunState.UNKNOWN, None, 6),
        (RunState.QUARANTINED, None, 6),
        (RunState.QUARANTINED, Outcome(OutcomeKind.EXITED, code=0), 6),
    ],
)
def test_of_a_run(state: RunState, outcome: Outcome | None, code: int) -> None:
    assert exit_codes.of_run(state, outcome) == code


def test_the_documentation_names_every_error_code() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "cli.md"
    text = page.read_text(encoding="utf-8")
    missing = [code.value for code in exit_codes.BY_CODE if f"`{code.value}`" not in text]
    assert not missing
