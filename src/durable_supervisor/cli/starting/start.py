"""``start``: hand a program over and come back at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from ..opening.prestart import prestarted_worker
from ..options.declared import Option
from ..options.shared import Call, Grace, Json, Settings, SocketPath, StateDir, settings
from . import confined, request

if TYPE_CHECKING:
    from durable_supervisor.model.request import StartRequest

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
    asked, queueing = request.ask(call.params), request.queueing(call.params)
    if dry_run:
        return _show_request(shared, asked, generated_id=request_id is None)
    prestarted = prestarted_worker(shared)
    from .start_run import start_run  # while the worker loads, on another processor

    return start_run(shared, asked, queueing, prestarted)


def _show_request(shared: Settings, asked: StartRequest, *, generated_id: bool) -> int:
    from ..output import exit_codes, out

    form = request.describe(asked, generated_id=generated_id)
    if shared.json:
        out.document(form)
    else:
        from ..rendering.tables import request_table

        out.write_text(request_table(form))
    return exit_codes.OK
