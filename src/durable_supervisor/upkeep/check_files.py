"""Check what lies in a directory: whose it is, who may read it, and what has no business there."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable

from ..model.backup import MANIFEST
from ..model.verify import Severity, VerifyReport
from ..process.places import POINTER_NAME, SOCKET_NAME
from ..process.shortage import is_shortage
from ..runlog.collected import NAME as COLLECTED
from ..runlog.evidence import UNACCEPTED, read_evidence
from ..runlog.files import NotRegularError
from ..runlog.paths import RunPaths, list_runs, list_shards, parse_segment_name
from ..runlog.tree import files_below
from ..supervisor.state.state_dir import IMPORTED
from . import check_imports, manifest

_TOP = re.compile(
    r"journal\.db(-wal|-shm)?|journal\.db\.\d{8}T\d{6}\.old(-wal|-shm)?|supervisor\.lock"
    r"|(key|supervisor\.owner)(\.[0-9a-f]{8})?"  # half-made, by one that was killed
)
_OURS = frozenset({
    MANIFEST, POINTER_NAME, f"{POINTER_NAME}.new", SOCKET_NAME, f".{SOCKET_NAME}.new", "runs", IMPORTED,
})  # fmt: skip
_IN_SHARD = re.compile(r"[0-9a-z]+\.(a[1-9]\d*\.(log|seg)|sock)")
_SET_ASIDE = re.compile(r"(\d{16}.*\.log)\.(g\d+|tmp)")  # what a repair or a crash left; nobody reads it
_PATIENCE = 5.0  # seconds for a start to be committed
_PAUSE = 0.02

Known = Callable[[str], bool]


def check_files(path: str, report: VerifyReport, known: Known, *, owned: bool) -> None:
    """``known``: does the journal have a row of this run?  ``owned``: runs may be started meanwhile."""
    _check_entry(path, report)
    for folder, folders, names in os.walk(path, onerror=lambda error: _unreadable(error, path, report)):
        place = os.path.relpath(folder, path)
        folders[:] = sorted(name for name in folders if place != IMPORTED or check_imports.is_settled(name))
        for name in sorted([*folders, *names]):
            entry = os.path.join(folder, name)
            if not _belongs(path, place, name):
                problem = "nothing of ours has this name"
                report.add("warning", "stray_file", entry, problem, "move it away, if it is not yours")
            _check_entry(entry, report)
    _check_runs(os.path.join(path, "runs"), report, known, owned)


def _unreadable(error: OSError, path: str, report: VerifyReport) -> None:
    if isinstance(error, FileNotFoundError):
        return  # gone since it was listed
    if is_shortage(error):
        raise error
    where = os.fsdecode(error.filename or path)
    report.add("error", "unreadable", where, f"it cannot be read: {error.strerror}", "make it readable")


def _belongs(top: str, place: str, name: str) -> bool:
    if place == ".":
        return name in _OURS or bool(_TOP.fullmatch(name))
    parts = place.split(os.sep)
    if parts[0] == IMPORTED:
        return check_imports.belongs(parts[1:], name)
    if parts == ["runs"]:
        return name == COLLECTED or name in list_shards(os.path.join(top, "runs"))
    if len(parts) == 2:
        return bool(_IN_SHARD.fullmatch(name))
    aside = _SET_ASIDE.fullmatch(name)
    return parse_segment_name(aside[1] if aside else name) is not None


def _check_entry(path: str, report: VerifyReport) -> None:
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return  # gone since it was listed
    if stat.S_ISLNK(status.st_mode):
        report.add("error", "link", path, "a link is never followed here", "put the file itself there")
        return
    if status.st_uid != os.geteuid():
        problem = f"it belongs to user id {status.st_uid}, not to you ({os.geteuid()})"
        report.add("error", "not_ours", path, problem, "chown it, or run as its owner")
    if status.st_mode & 0o077:
        problem = f"it is open to others (mode {stat.S_IMODE(status.st_mode):04o})"
        report.add("error", "open_to_others", path, problem, "chmod go= it")


def _check_runs(runs_dir: str, report: VerifyReport, known: Known, owned: bool) -> None:
    """Logs without a row: of an older journal, or of a start that was never accepted."""
    strangers = [one for shard in list_shards(runs_dir) for one in _unknown(runs_dir, shard, known)]
    deadline = time.monotonic() + (_PATIENCE if owned else 0)
    while strangers and time.monotonic() < deadline:  # a start makes its log first, its row next
        time.sleep(_PAUSE)
        strangers = [one for one in strangers if _is_strange(*one, known)]
    for paths, attempt in strangers:
        _report_stranger(paths, attempt, report)


def _unknown(runs_dir: str, shard: str, known: Known) -> list[tuple[RunPaths, int]]:
    try:
        found = list_runs(runs_dir, shard)
    except OSError as error:
        if is_shortage(error):
            raise
        return []  # told already
    return [(RunPaths(runs_dir, shard, one), attempt) for one, attempt in found.items() if not known(one)]


def _is_strange(paths: RunPaths, attempt: int, known: Known) -> bool:
    return os.path.lexists(paths.log(attempt)) and not known(paths.run_id)


def _report_stranger(paths: RunPaths, attempt: int, report: VerifyReport) -> None:
    severity: Severity = "error"
    problem = "the journal does not know this run"
    hint = "run `durable-supervisor recover`: its request id may be spent"
    evidence = read_evidence(paths, attempt)
    if not evidence.has_records:
        severity, problem = "note", "a start that was never accepted"
        hint = "nothing: the next opening removes it, or `recover` takes it in"
        if evidence.status not in UNACCEPTED:
            problem, hint = "no run is known by this log, and it does not say whose it is", "move it away"
    report.add(severity, "log_without_row", paths.log(attempt), problem, hint, paths.run_id)


def check_manifest(path: str, report: VerifyReport, check: Callable[[], None]) -> None:
    """The files of a backup that nobody has opened yet are what they were when it was made."""
    place = os.path.join(path, MANIFEST)
    try:
        said = manifest.read(path)
    except (OSError, ValueError, RecursionError, NotRegularError) as error:
        report.add("error", "manifest_damaged", place, f"cannot be read: {error}", "make a new backup")
        return
    if said is None:
        return
    report.subject = "backup"
    if not manifest.is_unused(path):
        problem = "this backup has been in use: its digests are of the past"
        report.add("note", "backup_in_use", place, problem, "nothing")
        return
    there = set(files_below(path)) - {MANIFEST, "journal.db-wal", "journal.db-shm"}
    for name in sorted(there - said.keys()):
        entry = os.path.join(path, name)
        report.add("error", "file_added", entry, "it came after the backup was made", "make a new backup")
    for name, digest in said.items():
        _check_digest(os.path.join(path, name), digest, report, check)


def _check_digest(
    path: str, digest: manifest.Digest, report: VerifyReport, check: Callable[[], None]
) -> None:
    try:
        if manifest.digest_of(path, check) == digest:
            return
        problem = "it is not what it was when the backup was made"
    except (OSError, NotRegularError) as error:
        problem = f"it was there when the backup was made, and cannot be read: {error}"
    report.add("error", "file_differs", path, problem, "make a new backup")
