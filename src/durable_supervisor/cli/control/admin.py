"""``resolve``, ``reconcile``, ``recover``: an operator's verbs, which take an owner."""

from __future__ import annotations

from typing import Annotated, Any

from durable_supervisor.model.errors import ErrorCode, SupervisorError, invalid

from ..opening.session import drive, owning
from ..options.declared import Option
from ..options.shared import Call, Json, RunId, Settings, SocketPath, StateDir, settings
from ..output import exit_codes, out

_NAMED = 8  # runs that a report names before it only counts

_Accept = Annotated[bool, Option("--accept", help="Take it as it is; nothing is signalled.")]
_Kill = Annotated[bool, Option("--kill", help="Kill what is proven to be of the run, then settle it.")]
_Wait = Annotated[bool, Option("--wait", help="Wait until what is left of it ends by itself.")]
_Note = Annotated[str, Option("--note", metavar="TEXT", help="Why; kept with the run.")]


def resolve(
    call: Call,
    run: RunId,
    accept: _Accept = False,
    kill: _Kill = False,
    wait: _Wait = False,
    note: _Note = "",
    json: Json = False,
    state_dir: StateDir = None,
    socket: SocketPath = None,
) -> int:
    """Give an operator's word on an unknown or quarantined run.

    Exactly one of --accept, --kill and --wait. The run settles as unknown: no
    outcome is ever made up.

    \b
    Example:
      dsup resolve 4f7k --kill --note "its worker was lost in the OOM of May 3rd"
    """
    shared = settings(call, json, state_dir, socket)
    chosen = [name for name, given in (("accept", accept), ("kill", kill), ("wait", wait)) if given]
    if len(chosen) != 1:
        raise invalid("resolve", "needs exactly one of --accept, --kill and --wait", "see --help for each")
    return drive(_resolve(shared, run, chosen[0], note))


async def _resolve(shared: Settings, run: str, action: str, note: str) -> int:
    async with owning(shared) as owner:
        view = await owner.ask(lambda verbs: verbs.resolve(run, action, note=note))
    from ..reading.runs import show

    show(shared, view)
    return exit_codes.OK


def reconcile(call: Call, json: Json = False, state_dir: StateDir = None, socket: SocketPath = None) -> int:
    """Judge every open and quarantined run from its evidence, now.

    \b
    Example:
      dsup reconcile --json
    """
    return drive(_reconcile(settings(call, json, state_dir, socket)))


async def _reconcile(shared: Settings) -> int:
    async with owning(shared) as owner:
        report = await owner.ask(lambda verbs: verbs.reconcile())
    _report(shared, "reconcile", report)
    return exit_codes.OK


def recover(call: Call, json: Json = False, state_dir: StateDir = None, socket: SocketPath = None) -> int:
    """Rebuild a lost or outdated journal from the run logs. Nothing is executed.

    \b
    Example:
      dsup recover
    """
    return drive(_recover(settings(call, json, state_dir, socket)))


async def _recover(shared: Settings) -> int:
    from durable_supervisor.api.election import OWNER_WAIT, reach
    from durable_supervisor.process.places import state_directory
    from durable_supervisor.supervisor.supervisor import Supervisor

    if shared.socket is not None:
        raise invalid("socket", "recover works on the files", "end the service, then give --state-dir")
    served = await reach(state_directory(shared.state_dir))
    if served is not None:
        await served.close()
    try:
        # A service is there to stay: waiting for its end would only take time.
        report = await Supervisor.recover(shared.state_dir, wait=OWNER_WAIT if served is None else 0)
    except SupervisorError as error:
        if error.code is ErrorCode.STATE_DIR_IN_USE:
            error.hint = "recover needs the directory to itself: end that process first, runs go on"
        raise
    _report(shared, "recover", report)
    lost = report["damaged_tombstones"]
    if lost:
        out.note(
            f"warning: {lost} of the lines that tell of collected runs cannot be read; unless a crash cut"
            " them short, the request ids of as many runs are known to nobody now and would run again"
        )
    return exit_codes.FAILED if lost else exit_codes.OK


def _report(shared: Settings, verb: str, report: Any) -> None:
    facts = dict(report) if isinstance(report, dict) else dict(report.to_dict())
    form = {"schema": f"durable-supervisor/{verb}/1", **facts}
    if shared.json:
        out.document(form)
        return
    from ..rendering.tables import fact_table

    out.write_text(fact_table([(name.replace("_", " "), _words(value)) for name, value in facts.items()]))


def _words(value: Any) -> str:
    """A fact of a report for a person: ``none``, one run, or a few named and the rest counted."""
    if isinstance(value, dict):
        value = [f"{run_id} {state}" for run_id, state in value.items()]
    if not isinstance(value, list):
        return "-" if value is None else str(value)
    if not value:
        return "none"
    words = [
        " ".join(str(part) for part in item.values() if part) if isinstance(item, dict) else str(item)
        for item in value[:_NAMED]
    ]
    rest = len(value) - len(words)
    return ", ".join(words) + (f" and {rest} more" if rest else "")
