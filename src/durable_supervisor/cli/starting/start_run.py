"""From a request that is ready to a run, and what is said of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from durable_supervisor.model.errors import ErrorCode, SupervisorError
from durable_supervisor.model.states import RunState

from ..opening.session import drive, observing, owning, start_alone
from ..output import exit_codes, out

if TYPE_CHECKING:
    from collections.abc import Mapping

    from durable_supervisor.api.owner import Owner
    from durable_supervisor.model.request import Queueing, StartRequest
    from durable_supervisor.model.run import Run
    from durable_supervisor.supervisor.workers.prestarted import PrestartedWorker

    from ..options.shared import Settings


def start_run(
    shared: Settings, asked: StartRequest, queueing: Queueing, prestarted: PrestartedWorker | None
) -> int:
    """Its exit code.  ``prestarted``: as for `session.owning`."""
    run = start_alone(shared, asked, queueing, prestarted, _prepare_to_tell)
    if run is None:
        return _tell(shared, *drive(_start(shared, asked, queueing, prestarted)))
    return _tell(shared, run, run.to_dict() if _has_just_begun(run) else drive(_inspect(shared, run.id)))


async def _start(
    shared: Settings, asked: StartRequest, queueing: Queueing, prestarted: PrestartedWorker | None
) -> tuple[Run, Mapping[str, object]]:
    async with owning(shared, prestarted=prestarted) as owner:
        run = await hand_over(owner, asked, queueing)
        if _has_just_begun(run):
            return run, run.to_dict()
        return run, (await owner.ask(lambda verbs: verbs.inspect(run.id))).to_dict()


async def _inspect(shared: Settings, run_id: str) -> Mapping[str, object]:
    async with observing(shared) as reading:
        return (await reading.inspect(run_id)).to_dict()


def _has_just_begun(run: Run) -> bool:
    """Then its answer says all that there is to say; else how it ended is to be told."""
    return run.state in (RunState.QUEUED, RunState.RUNNING)


def _prepare_to_tell() -> None:
    from ..output import run_line  # noqa: F401  while the worker begins, on another processor


def _tell(shared: Settings, run: Run, form: Mapping[str, object]) -> int:
    """``form``: what is known of it."""
    if shared.json:
        out.document(run.to_dict())
    else:
        from ..output.run_line import run_line

        out.line(run_line(form, run.admission))
    if form["state"] == RunState.NOT_STARTED:
        raise not_started(form)
    return exit_codes.OK


async def hand_over(owner: Owner, asked: StartRequest, queueing: Queueing, window: int | None = None) -> Run:
    """Ask for the start of what the options said."""
    return await owner.ask(
        lambda verbs: verbs.start(
            asked.command,
            request_id=asked.request_id,
            limits=asked.limits,
            completion=asked.completion,
            labels=asked.labels,
            policy=asked.policy,
            queue=queueing.queue,
            priority=queueing.priority,
            lifetime=asked.lifetime,
            window=window,
        )
    )


def not_started(form: Mapping[str, object]) -> SupervisorError:
    """The one-line error beside a run whose program never ran."""
    from ..output.describe import not_started_reason

    return SupervisorError(
        ErrorCode.NOT_STARTED,
        f"run {form['run_id']}: the program never ran: {not_started_reason(form)}",
        retryable=form.get("retryable") is True,
        hint=_next_step(form),
        details={"run_id": form["run_id"], "reason": form.get("reason")},
    )


def _next_step(form: Mapping[str, object]) -> str:
    from ..output.describe import is_generated

    argv = form.get("argv")
    name = str(argv[0]) if isinstance(argv, list | tuple) and argv else ""
    if form.get("reason") == "ENOENT" and any(mark in name for mark in " |;&<>"):
        return "no shell reads it: give the program and each argument as a word, or sh -c 'COMMAND LINE'"
    if not form.get("retryable"):
        return "start it anew"
    generated = is_generated(str(form.get("request_id")))
    again = "start it again" if generated else "send the same request id again"
    refused = str(form.get("reason")).isupper()  # an errno's name: something of the request is in the way
    return f"put it right and {again}" if refused else again
