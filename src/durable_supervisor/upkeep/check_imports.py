"""Check imported runs: each is still what its bundle says, and that what it was when it was imported."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from ..bundle.archive import Archive
from ..bundle.check import check_bundle
from ..bundle.contents import JOURNAL, RUN, parse_log_name
from ..model.errors import SupervisorError
from ..model.verify import VerifyReport
from ..process.shortage import is_shortage
from ..runlog.files import NotRegularError
from ..runlog.paths import parse_segment_name
from ..runlog.tree import files_below
from ..supervisor.imports.files import load
from ..supervisor.imports.imported import BUNDLE, GOING, LOGS, MARK, WORKSHOP, Home, home_of, homes
from ..supervisor.imports.plan import refusal
from .manifest import Digest, digest_of

_FILES = frozenset({BUNDLE, MARK, RUN, JOURNAL, LOGS})
_IN_SHARD = re.compile(r"[0-9a-z]+\.a[1-9]\d*\.(log|seg)")
_AGAIN = "move its folder away and import the bundle again"


def belongs(parts: list[str], name: str) -> bool:
    """Has ``imported`` a place for this name?  ``parts``: the folders on the way to it, from there on."""
    if not parts:
        return name == WORKSHOP or home_of("", name.removeprefix(GOING)) is not None
    if len(parts) == 1:
        return name in _FILES
    if len(parts) <= 3:
        return parts[1] == LOGS and (len(parts) == 2 or bool(_IN_SHARD.fullmatch(name)))
    return parse_segment_name(name) is not None


def is_settled(name: str) -> bool:
    """Is a folder neither half made nor half removed, by one who is at work or was killed?"""
    return name != WORKSHOP and not name.startswith(GOING)


def check_imports(folder: str, report: VerifyReport, check: Callable[[], None]) -> None:
    """Raises OSError where we ourselves are short of something, and what ``check`` raises."""
    for home in homes(folder):
        check()
        found = VerifyReport(report.path, report.subject)
        try:
            _one(home, found, check)
        except (SupervisorError, OSError, NotRegularError) as error:
            if isinstance(error, OSError) and is_shortage(error):
                raise
            problem = error.message if isinstance(error, SupervisorError) else str(error)
            found.add("error", "import_damaged", home.path, problem, _AGAIN, home.run_id)
        if os.path.lexists(home.path):  # else it was collected while we looked
            report.merge(found)


def _one(home: Home, report: VerifyReport, check: Callable[[], None]) -> None:
    row = load(home)
    mark, path = row.view.imported, home.file(BUNDLE)
    if mark is None or digest_of(path, check).sha256 != mark.sha256:
        _differs(home, report, path, "the bundle is not the one that was imported")
        return
    with Archive(path) as archive:
        members, manifest = archive.manifest.members, archive.manifest
        kept = {name for name in members if name in (RUN, JOURNAL) or parse_log_name(manifest, name)}
        for name in sorted(kept):
            if digest_of(home.file(name), check) != Digest(members[name].size, members[name].sha256):
                _differs(home, report, home.file(name), "it is not what the bundle has")
        for name in sorted(set(files_below(home.path)) - kept - {BUNDLE, MARK}):
            _differs(home, report, home.file(name), "the bundle has nothing of this name")
        found = VerifyReport(report.path, report.subject)
        told = check_bundle(archive, lambda: row.paths, found, check)
    problem = refusal(found, told)
    if problem is not None:
        _differs(home, report, path, problem)
    found.findings.clear()  # what is left of them came so, and was taken so
    found.counts.clear()
    report.merge(found)


def _differs(home: Home, report: VerifyReport, path: str, problem: str) -> None:
    report.add("error", "import_differs", path, problem, _AGAIN, home.run_id)
