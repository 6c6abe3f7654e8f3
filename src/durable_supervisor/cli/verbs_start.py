"""``start``: hand a program over and come back at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from durable_supervisor.model.errors import ErrorCode, SupervisorError
from durable_supervisor.model.states import RunState

from . import confined, exit_codes, out, request
from .declared import Option
from .describe import is_generated
from .options import Call, Grace, Json, Settings, SocketPath, StateDir, settings
from .session import drive, owning, worker_ahead

if TYPE_CHECKING:
    from collections.abc import Mapping

    from durable_supervisor.api.owner import Owner
    from durable_supervisor.model.request import StartRequest
    from durable_supervisor.model.run import Run
    from durable_supervisor.supervisor.ahead import WorkerAhead

DryRun = Annotated[bool, Option("--dry-run", help="Check the request and print it; start nothing.")]


# Longer than functions are otherwise: the signature is the table of its options.
def start(
    call: Call,
    argv: request.Argv,
    request_id: request.RequestId = None,
    cwd: request.Cwd = None,
    env: request.Env = None,
    env_file: request.EnvFile = None,
    secret_env: request.SecretEnv = None,
    inherit_env: request.InheritEnv = None,
    stdin: request.Stdin = None,
    pty: request.Pty = False,
    size: request.Size = None,
    term: request.Term = None,
    timeout: request.Timeout = None,
    idle_timeout: request.IdleTimeout = None,
    grace: Grace = None,
    max_output: request.MaxOutput = None,
    on_limit: request.OnLimitOption = None,
    network: confined.Network = None,
    grant: confined.Grants = None,
    files_backend: confined.FilesBackend = None,
    enforcement: confined.Enforcement = None,
    memory: confined.Memory = None,
    cpus: confined.Cpus = None,
    cpu_time: confined.CpuTime = None,
    processes: confined.Processes = None,
    open_files: confined.OpenFiles = None,
    file_size: confined.FileSize = None,
    max_stdin: confined.MaxStdin = None,
    completion: request.CompletionOption = None,
    queue: request.Queue = False,
    priority: request.Priority = "0",
    label: request.Label = None,
    dry_run: DryRun = False,
    json: Json = False,
    state_dir: StateDir = None,
    socket: SocketPath = None,
) -> int:
    """Start a program that outlives this command.

    The same --request-id never runs twice: it answers with the run it already has.

    \b
    Example:
      dsup start --request-id scan-17 --timeout 10m -- rg TODO src
      dsup start --secret-env API_TOKEN --label team=infra -- ./agent.sh
      dsup start --network none --grant .:all --memory 512M -- make test
    """
    shared = settings(call, json, state_dir, socket)
    asked, turn = request.ask(call.params), request.turn(call.params)
    if dry_run:
        return _show_request(shared, asked, generated_id=request_id is None)
    ahead = worker_ahead(shared)  # before asyncio is loaded, which takes as long as half a worker
    return drive(_start(shared, asked, turn, ahead))


async def _start(shared: Settings, asked: StartRequest, turn: request.Turn, ahead: WorkerAhead | None) -> int:
    async with owning(shared, ahead=ahead) as owner:
        run = await hand_over(owner, asked, turn)
        form = await _known_of(run, owner)
    if shared.json:
        out.document(run.to_dict())
    else:
        from .render import run_line

        out.line(run_line(form, run.admission))
    if form["state"] == RunState.NOT_STARTED:
        raise not_started(form)
    return exit_codes.OK


async def _known_of(run: Run, owner: Owner) -> Mapping[str, object]:
    """What there is to say of it.  Of one that has just begun its answer says all; else, how it ended."""
    if run.state in (RunState.QUEUED, RunState.RUNNING):
        return run.to_dict()
    return (await owner.ask(lambda verbs: verbs.inspect(run.id))).to_dict()


async def hand_over(owner: Owner, asked: StartRequest, turn: request.Turn, window: int | None = None) -> Run:
    """Ask for the start of what the options said."""
    return await owner.ask(
        lambda verbs: verbs.start(
            asked.command,
            request_id=asked.request_id,
            limits=asked.limits,
            completion=asked.completion,
            labels=asked.labels,
            policy=asked.policy,
            queue=turn.queue,
            priority=turn.priority,
            lifetime=asked.lifetime,
            window=window,
        )
    )


def not_started(form: Mapping[str, object]) -> SupervisorError:
    """The one-line error beside a run whose program never ran."""
    from .describe import not_started_reason

    return SupervisorError(
        ErrorCode.NOT_STARTED,
        f"run {form['run_id']}: the program never ran: {not_started_reason(form)}",
        retryable=form.get("retryable") is True,
        hint=_next_step(form),
        details={"run_id": form["run_id"], "reason": form.get("reason")},
    )


def _next_step(form: Mapping[str, object]) -> str:
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


def _show_request(shared: Settings, asked: StartRequest, *, generated_id: bool) -> int:
    form = request.describe(asked, generated_id=generated_id)
    if shared.json:
        out.document(form)
    else:
        from .render import request_table

        out.write_text(request_table(form))
    return exit_codes.OK
