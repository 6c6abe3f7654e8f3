"""Check the journal by itself, and the key and the tombstones against it.  Reads only."""

from __future__ import annotations

from functools import partial

from ..journal import checking, collecting, copying, meta, runs
from ..journal.reader import JournalReader
from ..journal.tombstones import Tombstone
from ..model.errors import SupervisorError
from ..model.verify import Severity, VerifyReport
from ..runlog.collected import CollectedLog
from ..runlog.files import NotRegularError
from ..supervisor.admission.admission import key_id
from ..supervisor.gc.collected import read as read_tombstones
from ..supervisor.state import state_dir as directory
from ..supervisor.state.state_dir import StateDir

_RECOVER = "restore it from a backup, or run `durable-supervisor recover`"
_RESTORE = "compare both; restore from a backup"
_WRITE_AGAIN = "move the file away: the next opening writes it again, from the journal"
_PAGE = 500


def check_journal(place: StateDir, reader: JournalReader, report: VerifyReport) -> None:
    """Raises SupervisorError ``JOURNAL_CORRUPT`` where SQLite cannot go on."""
    for problem in reader.read(checking.integrity):
        report.add("error", "journal_damaged", place.journal, problem, _RECOVER)
    for table, count in reader.read(checking.orphans).items():
        problem = f"{count} rows of {table} belong to no run"
        report.add("error", "journal_orphans", place.journal, problem, _RECOVER)
    for run_id in reader.read(checking.without_attempt):
        problem = "one of its attempts has no row"
        report.add("error", "journal_incomplete", place.journal, problem, _RECOVER, run_id)
    for name in reader.read(checking.other_schema):
        problem = f"its {name} is not as it was made"
        report.add("error", "journal_damaged", place.journal, problem, _RECOVER)
    for name in reader.read(checking.other_migrations):
        problem = f"it was made by another {name} than this version has"
        report.add("warning", "other_migration", place.journal, problem, "use the version that made it")
    _check_key(place, reader, report)


def _check_key(place: StateDir, reader: JournalReader, report: VerifyReport) -> None:
    try:
        key = directory.load_key(place, create=False)
    except SupervisorError as error:
        report.add("error", "key_unusable", place.key, error.message, error.hint)
        return
    if reader.read(meta.key_id) not in (None, key_id(key)):
        problem = "it is not the key that the journal's digests were made with"
        report.add("error", "key_differs", place.key, problem, "put the right key back from a backup")


def check_tombstones(place: StateDir, reader: JournalReader, report: VerifyReport) -> None:
    """Every line must be of a run that is over in the journal; every collected run must have a line."""
    log = CollectedLog(place.runs)
    collected = _collected(reader)  # the rows first: a line is written before its row
    report.collected = len(collected)
    directory_id = reader.read(meta.directory_id) or ""
    try:
        lines = [stone for _, stone in read_tombstones(log)]
    except (OSError, NotRegularError) as error:
        report.add("error", "tombstones_unreadable", log.path, f"cannot be read: {error}", _RECOVER)
        return
    stones = {stone.run.run_id: stone for stone in lines if stone is not None}
    for run_id, stone in stones.items():
        if stone.directory_id != directory_id:
            problem = "a line is of another directory"
            report.add("error", "tombstone_foreign", log.path, problem, _RECOVER, run_id)
        elif not stone.explains(reader.read(partial(runs.get, run_id=run_id))):
            problem = "a run was collected of which the journal does not know the end"
            report.add("error", "journal_behind", log.path, problem, _RECOVER, run_id)
        elif run_id in collected and stone.differs(collected[run_id]):
            problem = "a collected run's line is not what the journal says of it"
            report.add("error", "tombstone_differs", log.path, problem, _RESTORE, run_id)
    _check_lines(lines.count(None), len(collected.keys() - stones.keys()), log, report)


def _check_lines(damaged: int, lacking: int, log: CollectedLog, report: VerifyReport) -> None:
    """A damaged line that no collected run lacks was cut short by a crash, and its run told again or kept."""
    if damaged:
        problem = f"{damaged} lines are damaged, or were never finished"
        severity: Severity = "warning" if lacking else "note"
        report.add(severity, "tombstone_damaged", log.path, problem, _WRITE_AGAIN if lacking else "nothing")
    if lacking:
        problem = f"{lacking} collected runs have no line"
        report.add("warning", "tombstone_missing", log.path, problem, _WRITE_AGAIN)


def _collected(reader: JournalReader) -> dict[str, Tombstone]:
    found: dict[str, Tombstone] = {}
    serial = 0
    if not reader.read(copying.knows_collected):
        return found
    page = partial(collecting.collected_runs, directory_id="", limit=_PAGE)
    while stones := reader.read(partial(page, after_serial=serial)):
        serial = stones[-1].run.serial
        found |= {stone.run.run_id: stone for stone in stones}
    return found
