"""``import``: runs of other directories, to be read here."""

from __future__ import annotations

import os
from operator import methodcaller
from typing import TYPE_CHECKING, Annotated

from durable_supervisor.model.errors import SupervisorError

from ..opening.session import drive, owning
from ..options.declared import Argument
from ..options.shared import Call, Json, Settings, SocketPath, StateDir, settings
from ..output import errors, exit_codes, out
from ..output.escape import escape_text

if TYPE_CHECKING:
    from durable_supervisor.model.importing import ImportReport

_Files = Annotated[list[str], Argument(metavar="FILE...", help="Bundles, as 'export' writes them.")]
_WORDS = {
    "imported": "imported",
    "already": "was imported before",
    "own": "is a run of this directory: nothing to import",
}


def import_bundles(
    call: Call,
    files: _Files,
    json: Json = False,
    state_dir: StateDir = None,
    socket: SocketPath = None,
) -> int:
    """Take the runs in bundles in, to be read here.

    list, inspect, events, logs, replay, report and export know them then, marked as
    imported. They can be read, nothing else: no control reaches them, and their request
    ids are free here. A bundle is checked whole first; one that is refused keeps none of
    the others out.

    \b
    Example:
      dsup import nightly.zip
      dsup list
    """
    shared = settings(call, json, state_dir, socket)
    return drive(_import(shared, [os.path.expanduser(file) for file in files]))


async def _import(shared: Settings, files: list[str]) -> int:
    """The exit code of the first that was refused, else 0."""
    left = exit_codes.OK
    async with owning(shared) as owner:
        for file in files:
            try:
                report = await owner.ask(methodcaller("import_", file))
            except SupervisorError as error:
                code = _refused(error, file, shared)
                left = left or code
            else:
                _tell(report, shared)
    return left


def _refused(error: SupervisorError, file: str, shared: Settings) -> int:
    error.details.setdefault("path", file)
    if not shared.json:
        error.message = f"{file}: {error.message}"
    return errors.report(error, as_json=shared.json)


def _tell(report: ImportReport, shared: Settings) -> None:
    if shared.json:
        out.document(report.to_dict())
        return
    state = f" ({report.state} when it was exported)" if report.admission == "imported" else ""
    out.line(escape_text(f"{report.run_id}  {_WORDS[report.admission]}{state}"))
