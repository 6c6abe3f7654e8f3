"""``list``, ``inspect``, ``wait``: what is known about runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from durable_supervisor.model.errors import ErrorCode, SupervisorError, invalid
from durable_supervisor.model.states import RunState

from ..opening.session import drive, observing
from ..opening.unknown import is_bundle, no_file
from ..options import parse
from ..options.declared import Argument, Option, one_of
from ..options.shared import Call, Json, RunId, RunOrBundle, Settings, SocketPath, StateDir, settings
from ..output import exit_codes, out
from ..output.escape import escape_text

if TYPE_CHECKING:
    from durable_supervisor.model.view import RunView

_Bundle = Annotated[str, Argument(metavar="[BUNDLE]", help="List what is in this bundle instead.")]
_Limit = Annotated[str, Option("--limit", "-n", metavar="N", help="At most this many, newest first.")]
_States = Annotated[
    list[str] | None,
    Option(
        "--state",
        metavar="STATE",
        help=f"Only in this state, one of {', '.join(RunState)}; may be repeated.",
        complete=one_of(*RunState),
    ),
]
_Label = Annotated[str | None, Option("--label", "-l", metavar="NAME=VALUE", help="Only with it.")]
_Before = Annotated[
    str | None, Option("--before", metavar="SERIAL", help="Go on after a page: its next_before.")
]
_Collected = Annotated[bool, Option("--collected", help="With runs whose logs are gone; see 'gc'.")]
_Timeout = Annotated[str | None, Option("--timeout", metavar="TIME", help="Give up after it (124).")]


def list_runs(
    call: Call,
    bundle: _Bundle = "",
    limit: _Limit = "50",
    state: _States = None,
    label: _Label = None,
    before: _Before = None,
    collected: _Collected = False,
    json: Json = False,
    state_dir: StateDir = None,
    socket: SocketPath = None,
) -> int:
    """List runs, newest first.

    \b
    Example:
      dsup list --state running --label team=infra
    """
    shared = settings(call, json, state_dir, socket)
    states = [_state(word) for word in state or ()]
    wanted = None if label is None else next(iter(parse.pairs("label", [label]).items()))
    cursor = None if before is None else parse.whole("before", before, least=1)
    if bundle and not is_bundle(bundle):
        raise no_file("bundle", bundle, "`durable-supervisor inspect` shows one run, --state some of them")
    most = parse.whole("limit", limit, least=1)
    return drive(_list(shared, bundle, most, states, wanted, cursor, collected))


async def _list(
    shared: Settings,
    bundle: str,
    limit: int,
    states: list[RunState],
    label: tuple[str, str] | None,
    before: int | None,
    collected: bool,
) -> int:
    async with observing(shared, bundle) as observer:
        page = await observer.list(
            limit=limit, states=states or None, label=label, before=before, collected=collected
        )
        place = observer.state_dir
    form = page.to_dict()
    if shared.json:
        out.document(form)
        return exit_codes.OK
    from ..rendering.listing import runs_table

    out.write_text(runs_table([view.to_dict() for view in page.runs]))
    if not page.runs and out.is_terminal(out.STDERR):
        what = "such runs" if states or label or before else "runs"
        out.note(escape_text(f"no {what} in {place}"))
    if page.next_before is not None:
        out.note(f"more: --before {page.next_before}")
    return exit_codes.OK


def _state(word: str) -> RunState:
    try:
        return RunState(word)
    except ValueError:
        raise invalid("state", "is not a run state", f"one of {', '.join(RunState)}") from None


def inspect(
    call: Call,
    run: RunOrBundle,
    json: Json = False,
    state_dir: StateDir = None,
    socket: SocketPath = None,
) -> int:
    """Show everything about one run, live figures included.

    \b
    Example:
      dsup inspect 4f7k
      dsup --json inspect 4f7k | jq .outcome
    """
    return drive(_inspect(settings(call, json, state_dir, socket), run))


async def _inspect(shared: Settings, run: str) -> int:
    async with observing(shared, run) as observer:
        view = await observer.inspect(run)
    show(shared, view)
    return exit_codes.OK


def show(shared: Settings, view: RunView) -> None:
    """The inspect document, or its table."""
    form = view.to_dict()
    if shared.json:
        out.document(form)
        return
    from ..rendering.tables import run_table

    out.write_text(run_table(form))


def wait(
    call: Call,
    run: RunId,
    timeout: _Timeout = None,
    json: Json = False,
    state_dir: StateDir = None,
    socket: SocketPath = None,
) -> int:
    """Wait for the end of a run; leave with its exit code.

    128+signal where a signal ended it, 124 when its deadline or --timeout passed,
    6 when its outcome cannot be known.

    \b
    Example:
      dsup wait 4f7k --timeout 10m && echo done
    """
    shared = settings(call, json, state_dir, socket)
    return drive(_wait(shared, run, parse.positive_seconds("timeout", timeout)))


async def _wait(shared: Settings, run: str, timeout: float | None) -> int:
    async with observing(shared, run) as observer:
        try:
            view = await observer.wait(run, timeout=timeout)
        except SupervisorError as error:
            if error.code not in (ErrorCode.OUTCOME_UNKNOWN, ErrorCode.WAIT_TIMEOUT):
                raise
            _tell(shared, await observer.inspect(run))
            raise
    _tell(shared, view)
    if view.state is RunState.NOT_STARTED:
        from ..starting.start_run import not_started

        raise not_started(view.to_dict())
    return exit_codes.of_run(view.state, view.outcome)


def _tell(shared: Settings, view: RunView) -> None:
    if shared.json:
        out.document(view.to_dict())
        return
    from ..output.run_line import run_line

    out.line(run_line(view.to_dict()))
