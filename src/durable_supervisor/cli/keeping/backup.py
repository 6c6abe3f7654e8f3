"""``backup``: a copy of a whole state directory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

from ..opening.session import drive, needs_files
from ..options.declared import Argument
from ..options.shared import Call, Json, Settings, SocketPath, StateDir, settings
from ..output import exit_codes, out
from ..output.escape import escape_text
from .progress import progress

if TYPE_CHECKING:
    from durable_supervisor.model.backup import BackupReport

_Dest = Annotated[str, Argument(metavar="DEST", help="A new directory; nothing may be there yet.")]


def backup(
    call: Call,
    dest: _Dest,
    json: Json = False,
    state_dir: StateDir = None,
    socket: SocketPath = None,
) -> int:
    """Copy the state directory, of one moment, while it is in use.

    Leaves with 1 if a log could not be read: then it is not in it, or not whole.
    DEST is a state directory of its own. Runs that were not over are unknown in it;
    no request that it knows is ever executed again.

    \b
    Example:
      dsup backup /mnt/backups/agents-2026-05-01
      dsup list --state-dir /mnt/backups/agents-2026-05-01
    """
    shared = settings(call, json, state_dir, socket)
    needs_files(shared)
    return drive(_backup(shared, dest))


async def _backup(shared: Settings, dest: str) -> int:
    from durable_supervisor.upkeep.backup import backup as make

    report = await make(os.path.expanduser(dest), state_dir=shared.state_dir, tell=progress())
    if shared.json:
        out.document(report.to_dict())
    else:
        _print(report)
    return exit_codes.FAILED if report.left_out else exit_codes.OK


def _print(report: BackupReport) -> None:
    from durable_supervisor.model.quantities import plural, size

    for run_id, problem in report.left_out.items():
        out.note(escape_text(f"the log of run {run_id} is not in it, or not whole: {problem}"))
    what = [plural(report.runs, "run"), size(report.bytes)]
    if report.collected:
        what.insert(1, f"{report.collected} collected")
    if report.unsettled:
        what.append(f"{len(report.unsettled)} of them not over: what became of them is not in it")
    out.line(escape_text(f"{report.path}  {', '.join(what)}"))
