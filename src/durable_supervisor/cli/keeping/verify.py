"""``verify``: is all of a directory, a backup or a bundle as it should be?"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

from ..opening.session import drive, needs_files
from ..opening.unknown import no_file
from ..options.declared import Argument
from ..options.shared import Call, Json, Settings, SocketPath, StateDir, settings
from ..output import exit_codes, out
from ..output.escape import escape_text
from .progress import progress

if TYPE_CHECKING:
    from durable_supervisor.model.verify import Finding, VerifyReport

_Path = Annotated[
    str | None, Argument(metavar="[PATH]", help="A directory, a backup or a bundle; else --state-dir.")
]
_COLOURS = {"error": "red", "warning": "yellow", "note": "dim"}


def verify(
    call: Call,
    path: _Path = None,
    json: Json = False,
    state_dir: StateDir = None,
    socket: SocketPath = None,
) -> int:
    """Check all that is stored; repairs nothing. Leaves with 1 if something is wrong.

    Every byte of every log by its checksums, every event in its place, receipts and
    states against the journal, modes, and what does not belong there. Also while it is
    in use.

    \b
    Example:
      dsup verify
      dsup verify /mnt/backups/agents-2026-05-01
      dsup verify ./nightly.zip
    """
    shared = settings(call, json, state_dir, socket)
    if path is None:
        needs_files(shared)
    elif not os.path.exists(os.path.expanduser(path)):
        raise no_file("path", path, "verify takes a state directory, a backup or a bundle")
    return drive(_verify(shared, path))


async def _verify(shared: Settings, path: str | None) -> int:
    from durable_supervisor.upkeep.verify import verify as look

    report = await look(shared.state_dir if path is None else os.path.expanduser(path), tell=progress())
    if shared.json:
        out.document(report.to_dict())
    else:
        _print(report)
    return exit_codes.OK if report.ok else exit_codes.FAILED


def _print(report: VerifyReport) -> None:
    from durable_supervisor.model.quantities import plural, size

    for finding in report.findings:
        _print_finding(finding)
    counted = sum(report.counts.values())
    if counted > len(report.findings):
        out.line(f"and {counted - len(report.findings)} more")
    read = f"{plural(report.runs, 'run')}, {plural(report.events, 'event')}, {size(report.bytes)}"
    wrong = ", ".join(plural(report.counts[severity], severity) for severity in ("error", "warning"))
    told = "ok" if report.ok else wrong
    out.line(escape_text(f"{report.path}  {told}  {read}"))


def _print_finding(finding: Finding) -> None:
    from ..output.style import Style

    severity = Style(out.STDOUT).paint(_COLOURS[finding.severity], f"{finding.severity:<7}")
    out.line(f"{severity}  {escape_text(finding.path)}: {escape_text(finding.problem)}")
    if finding.severity != "note":
        out.line(f"         {escape_text(finding.hint)}")
