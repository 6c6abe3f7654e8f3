"""Check a bundle: what it claims of itself, and its log against the rows that it carries.  Reads only."""

from __future__ import annotations

from collections.abc import Callable

from ..model.errors import SupervisorError
from ..model.verify import VerifyReport
from ..process.clock import boot_id
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


def check_bundle(archive: Archive, unpack: Callable[[], RunPaths], report: VerifyReport) -> Told | None:
    """Every member by its digest; then the log, which ``unpack`` lays out, as one of a directory is checked.

    Answers what it tells of its run; None where that cannot be said, and the report says why.
    """
    if not _whole(archive, report):
        return None
    try:
        found = told(archive)
    except FormatError as problem:
        report.add("error", "bundle_malformed", archive.path, str(problem), _AGAIN, archive.manifest.run_id)
        return None
    # An open run's log was copied after its row was read, as beside an owner.
    setting = Setting(None, boot_id(), owned=True, row_now=lambda run_id: found.row)
    check_log(found.row, unpack(), setting, report)
    return found


def _whole(archive: Archive, report: VerifyReport) -> bool:
    """Members are told one by one: the others may still be good."""
    whole = True
    for name in archive.manifest.members:
        try:
            for _ in archive.chunks(name):
                pass
        except SupervisorError as error:
            report.add("error", "member_damaged", f"{archive.path}:{name}", error.message, _AGAIN)
            whole = False
    return whole
