"""A result is a value: it can be stored, sent, compared, and asked."""

from __future__ import annotations

import json
import pickle
from dataclasses import FrozenInstanceError

import pytest

from durable_supervisor import (
    AxisReport,
    CancellationToken,
    Command,
    ErrorCode,
    Limits,
    OutcomeKind,
    RunFailedError,
    RunResult,
    Supervisor,
    SupervisorError,
    run,
    stream,
)
from durable_supervisor.model.enforcement import axis_report
from durable_supervisor.model.result import never_started


async def test_there_and_back(sup: Supervisor) -> None:
    script = "printf 'a\\377'; echo \u20ac >&2; kill -TERM $$"
    result = await run(Command(argv=["sh", "-c", script]), supervisor=sup)
    form = json.loads(json.dumps(result.to_dict()))
    assert RunResult.from_dict(form) == result
    assert pickle.loads(pickle.dumps(result)) == result
    assert form["stderr"]["text"] == "\u20ac\n"
    assert "base64" not in form["stderr"]
    assert hash(result) == hash(RunResult.from_dict(form))
    with pytest.raises(FrozenInstanceError):
        result.exit_code = 0  # type: ignore[misc]


async def test_check_raises_with_the_result_attached(sup: Supervisor) -> None:
    result = await run(Command(argv=["sh", "-c", "echo why >&2; exit 9"]), supervisor=sup)
    with pytest.raises(RunFailedError) as caught:
        result.check()
    error = caught.value
    assert isinstance(error, SupervisorError)
    assert (error.code, error.result) == (ErrorCode.RUN_FAILED, result)
    assert error.termination == {"kind": "exited", "code": 9, "signal": None}
    assert (error.executable, error.stderr_tail) == ("sh", "why\n")
    assert str(error) == "RUN_FAILED: sh: exit code 9: why"
    again = pickle.loads(pickle.dumps(error))
    assert (again.result, again.to_dict()) == (result, error.to_dict())


def test_one_that_was_never_started() -> None:
    result = never_started(cancel_reason="user pressed stop")
    assert (result.reason, result.outcome, result.success) == (OutcomeKind.CANCELLED, None, False)
    assert RunResult.from_dict(json.loads(json.dumps(result.to_dict()))) == result
    with pytest.raises(RunFailedError, match="before it was executed"):
        result.check()


async def test_it_shows_the_ends_of_what_it_printed(sup: Supervisor) -> None:
    script = "seq 1000; printf 'first\\n\\033[31mlast\\n' >&2; exit 1"
    result = await run(Command(argv=["sh", "-c", script]), supervisor=sup)
    assert repr(result).endswith("| 999 | 1000', stderr_tail='first | \ufffd[31mlast')")
    assert len(repr(result)) < 1200
    with pytest.raises(RunFailedError, match=r"exit code 1: first \| .*last$") as caught:
        result.check()
    assert "\n" not in str(caught.value)
    quiet = await run(Command(argv=["true"]), supervisor=sup)
    assert "_tail" not in repr(quiet)


async def test_no_token_is_shown_that_was_let_through(sup: Supervisor) -> None:
    token = "ghp_" + "a1B2" * 9
    command = Command(argv=["sh", "-c", "cat >&2; printf %0190d 0 >&2; exit 1"], redact_tokens=False)
    result = await run(command, input=token.encode() + b" ", supervisor=sup)
    assert token in result.stderr_text()
    assert "a1B2" not in repr(result) + str(RunFailedError(result))


async def test_a_token_that_came_too_late_is_no_reason(sup: Supervisor) -> None:
    token = CancellationToken()
    async with stream(Command(argv=["true"]), token=token, supervisor=sup) as events:
        await sup.wait(str(events.run_id))
        token.cancel("over anyway")
        result = await events.wait()
    assert (result.reason, result.cancel_reason) == (OutcomeKind.EXITED, None)


async def test_the_event_has_it_too(sup: Supervisor) -> None:
    done = await run(Command(argv=["true"]), supervisor=sup)
    events = (await sup.events(str(done.run_id))).events
    assert events[-1].result == done
    assert {event.result for event in events[:-1]} == {None}


def test_a_receipt_that_was_made_up_from_evidence() -> None:
    """Of a worker that was lost after its program's end was logged."""
    receipt = {
        "attempt": 1,
        "outcome": {"kind": "exited", "code": 3, "signal": None},
        "exit": {"code": 3, "signal": None},
        "rusage": None,
        "survivors": [],
        "stop": None,
        "incomplete": True,
        "cleanup_confirmed": False,
    }
    result = RunResult.from_receipt(receipt, run_id="r")
    assert (result.run_id, result.exit_code, result.output_incomplete) == ("r", 3, True)


def test_what_was_not_enforced_in_full() -> None:
    weak: AxisReport = {
        "requested": 9,
        "applied": "partial",
        "mechanism": "rlimit",
        "reason": "each by itself",
    }
    held: AxisReport = {"requested": True, "applied": "full", "mechanism": "subreaper", "reason": None}
    idle: AxisReport = {"requested": None, "applied": "none", "mechanism": None, "reason": None}
    report = {"tree": held, "memory": weak, "files": idle}
    result = RunResult(run_id="r", reason=OutcomeKind.EXITED, exit_code=0, enforcement=report)
    assert result.unenforced == {"memory": weak}
    assert never_started().unenforced == {}
    assert set(axis_report(None)) == AxisReport.__required_keys__


async def test_the_worker_s_reports_are_of_that_form(sup: Supervisor) -> None:
    command = Command(argv=["true"])
    result = await run(command, limits=Limits(timeout=60, max_open_files=50), supervisor=sup)
    assert {frozenset(report) for report in result.enforcement.values()} == {AxisReport.__required_keys__}
    assert set(result.unenforced) <= {"open_files"}  # of root, which may raise it again
