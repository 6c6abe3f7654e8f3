"""``run``: as if the program had been typed, but it outlives this terminal."""

from __future__ import annotations

import asyncio
import os
import signal as signals
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, NamedTuple

from durable_supervisor.api.window import Taken
from durable_supervisor.model.errors import ErrorCode, SupervisorError, invalid
from durable_supervisor.model.outcome import OutcomeKind
from durable_supervisor.model.request import Lifetime, Queueing, check_window
from durable_supervisor.model.states import RunState

from ..main import called_name
from ..opening.prestart import prestarted_worker
from ..opening.session import drive, observing, owning
from ..options import parse
from ..options.declared import Option
from ..options.shared import Call, Grace, Json, Raw, Settings, SocketPath, StateDir, settings
from ..output import describe, exit_codes, out
from ..output.errors import print_error
from ..output.style import Style
from ..output.while_read import while_read
from ..rendering.printer import Printer, terminals
from ..terminal import terminal
from ..terminal.interactive import Left
from ..terminal.viewing import Manner, Program, farewell, hold
from . import confined, request
from .start_run import hand_over, not_started

if TYPE_CHECKING:
    from durable_supervisor.api.verbs import Reading
    from durable_supervisor.model.request import StartRequest


_MOMENT = 0.2  # seconds that a last word may take


class _Remarks(NamedTuple):
    """What is said beside the program's own output, on stderr."""

    json: bool
    quiet: bool

    def say(self, words: str, *, to_script: str | None = None) -> None:
        """To a person at a terminal; to a script only what is meant for it: that stderr is the program's."""
        if self.json or self.quiet:
            return
        if out.is_terminal(out.STDERR):
            out.note(Style(out.STDERR).paint("dim", f"[{words}]"))
        elif to_script is not None:
            out.note(f"{called_name()}: {to_script}")


Quiet = Annotated[bool, Option("--quiet", "-q", help="Do not say which run it is, nor what ended it.")]


# Longer than functions are otherwise: the signature is the table of its options.
def run(
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
    lifetime: request.LifetimeOption = None,
    window: request.Window = None,
    label: request.Label = None,
    raw: Raw = False,
    quiet: Quiet = False,
    json: Json = False,
    state_dir: StateDir = None,
    socket: SocketPath = None,
) -> int:
    """Run a program in the foreground: its output, its exit code.

    Ctrl-C stops its whole tree gracefully, a second one kills it, a third leaves
    without waiting. If this command dies, or who reads its output leaves, the program
    goes on, and 'attach' finds it; with --lifetime scope it is stopped instead.
    With --pty, at a terminal, every key is the program's, Ctrl-C too; ctrl-] d
    leaves it running. What ended the program other than itself is said on stderr.
    With --json nothing is shown but the final inspect document.

    \b
    Example:
      dsup run --timeout 10m -- make test
      dsup run --lifetime scope -- tail -f /var/log/syslog | grep -m1 error
    """
    shared = settings(call, json, state_dir, socket)
    asked, queueing = request.ask(call.params), request.queueing(call.params)
    wanted = _Wanted(asked, queueing, _checked_window(window, asked, shared))
    return drive(_run(shared, wanted, Printer(escape=terminals(raw=raw)), _Remarks(shared.json, quiet)))


class _Wanted(NamedTuple):
    """What is to be started, and how."""

    asked: StartRequest
    queueing: Queueing
    window: int | None  # bytes that the program may be ahead of our reader

    @property
    def scoped(self) -> bool:
        """Does it end with us?"""
        return self.asked.lifetime is Lifetime.SCOPE


def _checked_window(word: str | None, asked: StartRequest, shared: Settings) -> int | None:
    """Raises INVALID_REQUEST; so for a run of which nobody here would read on."""
    if word is None:
        return None
    if shared.json or asked.command.pty is not None:
        raise invalid("window", "needs pipes whose output is shown", "leave out --json and --pty")
    return check_window(parse.size("window", word), asked.lifetime)


async def _run(shared: Settings, wanted: _Wanted, printer: Printer, remarks: _Remarks) -> int:
    presses: asyncio.Queue[None] = asyncio.Queue()
    # Before the start: a Ctrl-C in the middle of it must stop the run, not lose sight of it.
    asyncio.get_running_loop().add_signal_handler(signals.SIGINT, presses.put_nowait, None)
    run_id = await _begin(shared, wanted)
    remarks.say(f"run {run_id}")
    async with observing(shared) as observer:
        if wanted.asked.command.pty is not None and terminal.is_interactive() and not shared.json:
            return await _sit_at(observer, run_id, wanted, printer, remarks)
        watcher = asyncio.create_task(_stop_on_press(observer, run_id, presses))
        try:
            return await _watch(observer, run_id, wanted, printer, remarks)
        finally:
            watcher.cancel()


async def _sit_at(
    observer: Reading, run_id: str, wanted: _Wanted, printer: Printer, remarks: _Remarks
) -> int:
    """The program has a terminal, and a person sits at ours: every key is for the program."""
    async with observer.attach(run_id) as attached:
        left = await hold(attached, Program(terminal=True, stdin=True, head=0), Manner(), printer.show)
    if left is Left.ENDED:
        return await _result(observer, run_id, printer, remarks)
    return farewell(left, run_id, attached.cursor, goes_on=not wanted.scoped)


async def _begin(shared: Settings, wanted: _Wanted) -> str:
    """Own the state directory only while starting, so that two `run`s work side by side."""
    async with owning(shared, prestarted=prestarted_worker(shared)) as owner:
        return (await hand_over(owner, wanted.asked, wanted.queueing, wanted.window)).id


async def _watch(observer: Reading, run_id: str, wanted: _Wanted, printer: Printer, remarks: _Remarks) -> int:
    if not remarks.json:
        try:
            async with while_read() if wanted.scoped else nullcontext():
                await _show(observer, run_id, Taken(wanted.window), printer)
        except BrokenPipeError:
            out.note(await _unread(observer, run_id, scoped=wanted.scoped))
            raise
    return await _result(observer, run_id, printer, remarks)


async def _show(observer: Reading, run_id: str, taken: Taken, printer: Printer) -> None:
    async for event in observer.follow(run_id):
        await printer.show(event)
        if counts := taken.due(event):
            await observer.acknowledge(run_id, **counts)
            taken.told(counts)
    await printer.finish()


async def _unread(observer: Reading, run_id: str, *, scoped: bool) -> str:
    """Also for a script, also with -q: a run that goes on unseen must not go on unsaid.

    It does go on, other than a program in a pipeline of the shell: who quits a pager has not asked for
    the end of a build.
    """
    form = (await observer.inspect(run_id)).to_dict()
    if not describe.is_open(form):
        fate = f"is over: {describe.state_word(form)}"
    elif scoped:
        fate = "is stopped"
    else:
        fate = f"goes on ('dsup attach {run_id}' comes back to it, 'dsup stop {run_id}' ends it)"
    return f"the reader of the output is gone; run {run_id} {fate}"


async def _result(observer: Reading, run_id: str, printer: Printer, remarks: _Remarks) -> int:
    """Of a run that is over, or nearly: its document, its remarks, its exit code."""
    lost: SupervisorError | None = None
    try:
        view = await observer.wait(run_id)
    except SupervisorError as error:
        if error.code is not ErrorCode.OUTCOME_UNKNOWN:
            raise
        lost = error
        view = await observer.inspect(run_id)
    form = view.to_dict()
    if remarks.json:
        out.document(form)
    await printer.end_line()
    if view.state is RunState.NOT_STARTED:
        raise not_started(form)
    if lost is not None:
        raise lost
    if view.outcome is not None and view.outcome.kind is not OutcomeKind.EXITED:
        words = describe.end_words(form)
        by_itself = view.outcome.kind is OutcomeKind.SIGNALED
        remarks.say(words, to_script=None if by_itself else f"run {run_id}: {words}")
    return exit_codes.of_run(view.state, view.outcome)


async def _stop_on_press(observer: Reading, run_id: str, presses: asyncio.Queue[None]) -> None:
    """What a press asks for is done whatever becomes of its words: a stuck terminal takes none."""
    going_on = set()
    for grace, words in (
        (None, "stopping; Ctrl-C again to kill"),
        (0.0, "killing; Ctrl-C again to leave without waiting"),
    ):
        await presses.get()
        # Not awaited here: the second press must be heard while the first stop goes on.
        said = out.note_patiently(f"\n{words}" if out.is_terminal(out.STDERR) else words)
        going_on |= {asyncio.create_task(said), asyncio.create_task(_stop(observer, run_id, grace))}
    await presses.get()
    last = out.note_patiently(f"left, nothing confirmed; 'dsup inspect {run_id}' tells what became of it")
    await asyncio.wait([asyncio.create_task(last)], timeout=_MOMENT)
    os._exit(exit_codes.INTERRUPTED)  # nothing of ours is worth waiting for: the worker owns the run


async def _stop(observer: Reading, run_id: str, grace: float | None) -> None:
    try:
        await observer.stop(run_id, grace=grace)
    except SupervisorError as error:
        if error.code is not ErrorCode.NOT_RUNNING:  # it ended by itself meanwhile
            print_error(error, as_json=False)
