"""Check a bundle: what it claims of itself, and its log against the rows that it carries.  Reads only."""

from __future__ import annotations

from typing import Any

from ..bundle import contents
from ..bundle.reader import BundleReader
from ..journal.rows import RunRow
from ..model.errors import SupervisorError
from ..model.states import RunState
from ..model.verify import VerifyReport
from ..process.clock import boot_id
from .check_log import Setting, check_log

_AGAIN = "export the run again"


def check_bundle(reader: BundleReader, report: VerifyReport) -> None:
    """Every member by its digest; then the log, as one of a directory is checked."""
    if not _whole(reader, report):
        return
    try:
        row = _row(reader.archive.document(contents.JOURNAL)["run"])
    except (KeyError, TypeError, ValueError, AttributeError):
        problem = f"{contents.JOURNAL} does not say what it should"
        report.add("error", "bundle_malformed", reader.path, problem, _AGAIN)
        return
    if (row.run_id, row.attempt) != (reader.manifest.run_id, reader.manifest.attempts):
        problem = f"{contents.JOURNAL} is of another run, or attempt, than {contents.MANIFEST}"
        report.add("error", "bundle_malformed", reader.path, problem, _AGAIN, row.run_id)
        return
    # An open run's log was copied after its row was read, as beside an owner.
    setting = Setting(None, boot_id(), owned=True, row_now=lambda run_id: row)
    check_log(row, reader.unpacked(), setting, report)


def _whole(reader: BundleReader, report: VerifyReport) -> bool:
    """Members are told one by one: the others may still be good."""
    whole = True
    for name in reader.manifest.members:
        try:
            for _ in reader.archive.chunks(name):
                pass
        except SupervisorError as error:
            report.add("error", "member_damaged", f"{reader.path}:{name}", error.message, _AGAIN)
            whole = False
    return whole


def _row(form: dict[str, Any]) -> RunRow:
    return RunRow(**{**form, "state": RunState(form["state"])})
