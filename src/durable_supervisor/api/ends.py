"""What a call says of a run that is over, or that never was: from the view and the log."""

from __future__ import annotations

import errno
import signal
from dataclasses import replace
from typing import Final

from ..model.arguments import MAX_PAGE
from ..model.command import Command
from ..model.errors import ErrorCode, Phase, SupervisorError, enforcement_refused
from ..model.events import Kind
from ..model.result import RunResult, tail_text
from ..model.start_failure import start_failure_words
from ..model.states import OPEN_STATES
from ..model.view import RunView
from ..process import tree
from ..process.caller import RUN_ID_VARIABLE
from ..supervisor.observer import Observer
from .asked import not_on_path
from .verbs import Verbs

STOPPED: Final = "stopped"  # why a run is not_started that somebody took out of the queue
_PAGE: Final = 256  # events; in a flood the bytes of a page are its bound


async def with_output(verbs: Verbs, result: RunResult) -> RunResult:
    """The result with all that is kept of its output."""
    nothing = not (result.stdout_bytes or result.stderr_bytes or result.output_incomplete)
    if result.run_id is None or nothing:  # the usual end of many a small program: it saves a reading
        return result
    kept = await _kept(verbs, result.run_id)
    return replace(result, stdout=kept["stdout"], stderr=kept["stderr"])


async def _kept(verbs: Verbs, run_id: str) -> dict[str, bytes]:
    kept: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
    after = 0
    while True:
        page = await verbs.events(run_id, after=after, limit=_PAGE, kinds={Kind.OUTPUT})
        for event in page.events:
            kept[event.stream or "stdout"].append(event.data)
        if page.end or page.next_after == after:
            return {stream: b"".join(pieces) for stream, pieces in kept.items()}
        after = page.next_after


def end_daemons(run_id: str) -> None:
    """Whatever of a run has outlived its program: the mark in its environment stays."""
    tree.signal_all(tree.marked(RUN_ID_VARIABLE, run_id), signal.SIGKILL)


async def find_open(state_dir: str, request_id: str) -> str | None:
    """The id of the run that this request has become, if it goes on, from the files alone."""
    try:
        async with Observer.open(state_dir) as observer:
            runs = (await observer.list(limit=MAX_PAGE, states=OPEN_STATES)).runs
    except SupervisorError:
        return None
    return next((one.id for one in runs if one.request_id == request_id), None)


async def why_not_started(verbs: Verbs, seen: RunView, command: Command) -> SupervisorError:
    """User code never ran: the log says why."""
    page = await verbs.events(seen.id, kinds={Kind.RUN_NOT_STARTED}, limit=10)
    told = _told(page.events[-1].detail) if page.events else {}
    name = seen.argv[0] if seen.argv else None
    error = _refusal(seen, told, command)
    error.details.update({"run_id": seen.id, "request_id": seen.request_id, "executable": name})
    return error


def _told(detail: dict[str, object]) -> dict[str, object]:
    """What the kernel refused, also where it was the reconciler that found it in the log."""
    evidence = detail.get("evidence")
    failure = evidence.get("exec_failed") if isinstance(evidence, dict) else None
    return {**failure, **detail} if isinstance(failure, dict) else detail


def _refusal(seen: RunView, told: dict[str, object], command: Command) -> SupervisorError:
    if seen.reason == ErrorCode.ENFORCEMENT_REFUSED.value:
        return enforcement_refused(str(told.get("axis")), str(told.get("detail")))
    if told.get("step") == "resolve" and "/" not in command.argv[0]:
        return not_on_path(seen.argv[0], str(told.get("error")))
    details: dict[str, object] = {
        name: told[name] for name in ("errno", "error", "step", "path") if name in told
    }
    number = told.get("errno")
    return SupervisorError(
        ErrorCode.NOT_STARTED,
        f"{seen.argv[0]} was not started: {start_failure_words(seen.reason, told)}",
        phase=Phase.DISPATCH,
        retryable=seen.retryable and number not in (errno.ENOENT, errno.EACCES, errno.ENOEXEC),
        hint="nothing of it was executed: the same request id may be sent again",
        details={**details, "reason": seen.reason},
    )


async def outcome_unknown(verbs: Verbs, seen: RunView) -> SupervisorError:
    """``OUTCOME_UNKNOWN``, with all that is known."""
    return _unknown(
        seen, f"is {seen.state.value} ({seen.reason})", seen.evidence, await _tail(verbs, seen.id)
    )


def not_over(run_id: str, timeout: float) -> SupervisorError:
    """``WAIT_TIMEOUT``, of a call that went on waiting for less than its run takes."""
    return SupervisorError(
        ErrorCode.WAIT_TIMEOUT,
        f"run {run_id} is not over after {timeout:g} s",
        phase=Phase.RUN,
        retryable=True,
        hint="wait again, or end it",
        details={"run_id": run_id},
    )


def given_up(run_id: str) -> SupervisorError:
    """``SUPERVISOR_CLOSED``: another task has closed the call, and could not see its run end."""
    return SupervisorError(
        ErrorCode.SUPERVISOR_CLOSED,
        f"the call of run {run_id} was closed while its result was waited for",
        phase=Phase.RUN,
        hint=f"`durable-supervisor inspect {run_id}` shows what became of it",
        details={"run_id": run_id},
    )


def silent(seen: RunView) -> SupervisorError:
    """The same for a run whose worker should have ended it long ago, and neither did nor died."""
    evidence: dict[str, object] = {"reason": "worker_silent", "worker": seen.worker, "may_be_alive": True}
    return _unknown(seen, f"is still {seen.state.value}, long past its deadline", evidence, None)


def _unknown(
    seen: RunView, problem: str, evidence: dict[str, object] | None, tail: str | None
) -> SupervisorError:
    details: dict[str, object] = {
        "run_id": seen.id,
        "state": seen.state.value,
        "reason": seen.reason,
        "evidence": evidence,
        "executable": seen.argv[0] if seen.argv else None,
    }
    if tail:
        details["stderr_tail"] = tail
    return SupervisorError(
        ErrorCode.OUTCOME_UNKNOWN,
        f"run {seen.id} {problem}: its outcome cannot be known",
        phase=Phase.RUN,
        hint=f"`durable-supervisor inspect {seen.id}` shows the evidence; see `resolve`",
        details=details,
    )


async def _tail(verbs: Verbs, run_id: str) -> str | None:
    """What it last said on stderr, as far as that can be read."""
    try:
        said = await _kept(verbs, run_id)
    except SupervisorError:
        return None
    return tail_text(said["stderr"]) or None
