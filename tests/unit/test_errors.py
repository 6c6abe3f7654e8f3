"""The one error root."""

from __future__ import annotations

import json
import pickle

import pytest

from durable_supervisor.model.errors import ErrorCode, Phase, SupervisorError, invalid


def test_the_text_is_the_code_and_the_message() -> None:
    error = SupervisorError(ErrorCode.BUSY, "the journal is locked", hint="try again")
    assert str(error) == "BUSY: the journal is locked"
    assert error.args == ("the journal is locked",)


def test_the_json_form() -> None:
    error = SupervisorError(
        ErrorCode.STATE_DIR_IN_USE,
        "in use",
        phase=Phase.OPEN,
        retryable=True,
        hint="wait",
        details={"pid": 7},
    )
    assert json.loads(json.dumps(error.to_dict())) == {
        "code": "STATE_DIR_IN_USE",
        "message": "in use",
        "phase": "open",
        "retryable": True,
        "hint": "wait",
        "details": {"pid": 7},
    }


@pytest.mark.parametrize("code", list(ErrorCode))
def test_errors_cross_processes(code: ErrorCode) -> None:
    error = SupervisorError(code, "what", phase=Phase.READ, retryable=True, hint="do", details={"a": [1]})
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is SupervisorError
    assert copy.to_dict() == error.to_dict()


def test_details_are_a_copy() -> None:
    details: dict[str, object] = {"pid": 7}
    error = SupervisorError(ErrorCode.BUSY, "x", details=details)
    details["pid"] = 8
    assert error.details == {"pid": 7}


def test_an_invalid_field_is_named_and_has_a_hint() -> None:
    error = invalid("argv", "is empty")
    assert (error.code, error.phase) == (ErrorCode.INVALID_REQUEST, Phase.VALIDATE)
    assert str(error) == "INVALID_REQUEST: argv: is empty"
    assert "argv" in error.hint
    assert invalid("argv", "is empty", "name it").hint == "name it"


def test_names_and_values_of_codes_are_the_same() -> None:
    assert all(code.name == code.value for code in ErrorCode)
