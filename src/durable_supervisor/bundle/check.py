"""Check a bundle: what it claims of itself, and its log against the rows that it carries.  Reads only."""

from __future__ import annotations

from collections.abc import Callable

from ..model.errors import ErrorCode, SupervisorError
from ..model.states import JUDGED_STATES, RunState
from ..model.verify import VerifyReport
from ..process.clock import boot_id
from ..reconcile.view import shown_receipt
from ..runlog.evidence import read_evidence
from ..runlog.paths import RunPaths
from .archive import Archive
from .check_log import Setting, check_log
from .contents import FormatError
from .told import Told, told

_AGAIN = "export the run again"
# What an export cannot help: it takes a damaged log along as it is, and `log_health` says so.
DAMAGE = frozenset({
    "log_missing", "log_not_regular", "log_unreadable", "log_empty", "log_damaged", "header_damaged",
    "seq_gap", "events_lost",
})  # fmt: skip


def check_bundle(
    archive: Archive,
    unpack: Callable[[], RunPaths],
    report: VerifyReport,
    check: Callable[[], None] = lambda: None,
) -> Told | None:
    """Every member by its digest; then the log, which ``unpack`` lays out, as one of a directory is checked.

    ``check`` raises where nobody wants the rest any more.  Answers what it tells of its run; None where that
    cannot be said, and the report says why.
    """
    if not _whole(archive, report, check):
        return None
    try:
        found = told(archive)
    except FormatError as problem:
        report.add("error", "bundle_malformed", archive.path, str(problem), _AGAIN, archive.manifest.run_id)
        return None
    # An open run's log was copied after its row was read, as beside an owner.
    setting = Setting(None, boot_id(), owned=True, row_now=lambda run_id: found.row, check=check, frozen=True)
    paths = unpack()
    check_log(found.row, paths, setting, report)
    if found.row.state in JUDGED_STATES:
        _check_shown(found, paths, report)
    return found


def _check_shown(found: Told, paths: RunPaths, report: VerifyReport) -> None:
    """An end that the journal had not heard of yet was read in the log: so it says there."""
    view = found.view
    log = read_evidence(paths, view.attempt, directory_id=None, boot_id=boot_id())
    ran = log.released or log.receipt is not None
    other_end = log.receipt is not None and shown_receipt(log.receipt) != view.receipt
    if (view.state is RunState.FINISHED and other_end) or (view.state is RunState.NOT_STARTED and ran):
        problem = "how it ended is not what its log says"
        report.add("error", "state_contradicted", paths.log(view.attempt), problem, _AGAIN, view.id)


def _whole(archive: Archive, report: VerifyReport, check: Callable[[], None]) -> bool:
    """Members are told one by one: the others may still be good."""
    whole = True
    for name in archive.manifest.members:
        try:
            for _ in archive.chunks(name):
                check()
        except SupervisorError as error:
            if error.code is not ErrorCode.INVALID_REQUEST:
                raise  # no word on the bundle
            report.add("error", "member_damaged", f"{archive.path}:{name}", error.message, _AGAIN)
            whole = False
    return whole
