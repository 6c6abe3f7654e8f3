"""Check the log of one run: every byte by its checksums, every event in its place, all of it against the row.

Reads only, and beside a worker that writes: what is being written is no damage.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from ..journal.rows import RunRow
from ..model.events import Event, Kind
from ..model.states import OPEN_STATES, RunState
from ..model.verify import Severity, VerifyReport
from ..process.locks import LockState, probe_lock
from ..process.shortage import is_shortage
from ..runlog.create import read_header
from ..runlog.evidence import LogEvidence, read_evidence
from ..runlog.files import NotRegularError, list_segments, open_regular
from ..runlog.paths import FIRST, RunPaths
from ..runlog.walk import Walker

_ASKED = (
    "serial", "owner", "request_id", "digests", "key_id", "completion", "limits", "argv", "cwd",
    "env_names", "labels", "nested_in", "survives_unit_restart", "priority",
)  # fmt: skip
_STATUS = {
    "missing": "there is no log",
    "not_regular": "a link, pipe or directory is in the log's place",
    "foreign": "the log is another run's, or another directory's",
    "unreadable": "the log cannot be read",
    "empty": "the log is empty",
}
RESTORE = "the journal keeps what it knows; put the file back from a backup"


@dataclass(frozen=True, slots=True)
class Setting:
    """What a log is looked at in.

    ``directory_id`` None: any log is of here.  ``owned``: somebody is at work, so that the journal may be a
    moment behind its logs.  ``row_now`` reads a row anew.  ``check`` raises where nobody wants the rest any
    more; ``frozen`` as of `Walker`.
    """

    directory_id: str | None
    boot_id: str
    owned: bool
    row_now: Callable[[str], RunRow | None]
    check: Callable[[], None] = lambda: None
    frozen: bool = False


def check_log(row: RunRow, paths: RunPaths, setting: Setting, report: VerifyReport) -> None:
    """Adds what is wrong to the report.  Raises OSError where we ourselves are short of something."""
    found = VerifyReport(report.path, report.subject)
    _Check(row, paths, setting, found).all()
    if not os.path.lexists(paths.log(row.attempt)):
        now = setting.row_now(row.run_id)
        if now is not None and now.collected:
            return  # it went while we looked
    report.merge(found)


class _Check:
    def __init__(self, row: RunRow, paths: RunPaths, setting: Setting, report: VerifyReport) -> None:
        self._row = row
        self._paths = paths
        self._setting = setting
        self._report = report
        self._path = paths.log(row.attempt)

    def all(self) -> None:
        row = self._row
        held = probe_lock(self._path) is LockState.HELD
        newest = self._evidence(row.attempt)
        if newest.status != "ok":
            self._unusable(newest.status)
            return
        self._report.runs += 1
        for attempt in range(1, row.attempt):
            self._damage(self._evidence(attempt), writing=False)
            self._segments(attempt, writing=False)
        self._damage(newest, writing=held)
        self._segments(row.attempt, writing=held)
        self._header(newest)
        self._events()
        self._against_row(newest, held)

    def _evidence(self, attempt: int) -> LogEvidence:
        ids = {"directory_id": self._setting.directory_id, "boot_id": self._setting.boot_id}
        return read_evidence(self._paths, attempt, **ids, deep=True)

    def _unusable(self, status: str) -> None:
        self._add("error", f"log_{status}", _STATUS.get(status, status), RESTORE)

    def _damage(self, log: LogEvidence, *, writing: bool) -> None:
        for entry in log.damage:
            kind = entry["class"]
            where = f"{entry['length']} bytes at {entry['offset']} of {entry['segment']}"
            if kind == "corrupt":
                self._add("error", "log_damaged", f"{where} were changed, or never written", RESTORE)
            elif kind == "crash":
                problem = f"{where} were not on the disk when the machine went down"
                self._add("note", "log_lost_in_crash", problem, "nothing: what is left is whole")
            elif not writing:
                problem = f"{where} are the beginning of a record that was never finished"
                self._add("note", "log_torn", problem, "nothing: its writer was killed, the rest is whole")

    def _segments(self, attempt: int, *, writing: bool) -> None:
        """Each header names the run, the attempt and its own first event; repairs are counted upwards."""
        generation, keys = 0, list_segments(self._paths, attempt)
        for key in keys:
            self._setting.check()
            path = self._paths.segment_file(attempt, key)
            try:
                fd, size = open_regular(path)
            except (FileNotFoundError, NotRegularError):
                continue  # compacted meanwhile; where it is missing, its events are
            except OSError as error:
                if is_shortage(error):
                    raise
                self._add("error", "log_unreadable", f"cannot be read: {error.strerror}", RESTORE, path)
                continue
            try:
                header, _ = read_header(fd)
            finally:
                os.close(fd)
            self._report.bytes += size
            if header is None and writing and key == keys[-1]:
                continue  # just made
            if header is None:
                self._add("error", "header_damaged", "a segment's header is damaged", RESTORE, path)
                continue
            first = header.first_seq if key == FIRST else key[0]
            told = (header.run_id, header.attempt, header.first_seq)
            if told != (self._row.run_id, attempt, first) or header.generation < generation:
                problem = "the segment's header is not of this place"
                self._add("error", "header_differs", problem, RESTORE, path)
            generation = max(generation, header.generation)

    def _header(self, log: LogEvidence) -> None:
        """What was asked for, as the log has it and as the journal has it."""
        if log.header is None:
            return  # told as damage
        asked = log.header.detail
        row = {name: getattr(self._row, name) for name in _ASKED}
        differing = [name for name in _ASKED if name in asked and asked[name] != row[name]]
        if differing:
            problem = f"log and journal differ in what was asked for: {', '.join(differing)}"
            self._add("error", "header_differs", problem, "do not start anything; restore from a backup")

    def _events(self) -> None:
        expected = 1
        for event in Walker(self._paths, self._row.attempt, frozen=self._setting.frozen).events(0):
            self._setting.check()
            first = _first_of(event)
            if first != expected:
                problem = f"event {first} follows event {expected - 1}"
                self._add("error", "seq_gap", problem, RESTORE)
            if event.kind == Kind.OUTPUT_DROPPED and event.detail.get("reason") == "corrupt":
                problem = f"events {first} to {event.seq} cannot be read any more"
                self._add("error", "events_lost", problem, RESTORE)
            expected = event.seq + 1
            self._report.events += 1

    def _against_row(self, log: LogEvidence, held: bool) -> None:
        row, receipt = self._row, log.receipt
        if row.state is RunState.FINISHED:
            self._receipts(receipt)
        elif row.state is RunState.NOT_STARTED and (log.released or receipt is not None):
            problem = "the journal says that it never started, the log that it ran"
            self._add("error", "state_contradicted", problem, "do not send the request again")
        elif row.state is RunState.UNKNOWN and receipt is not None:
            problem = "the journal calls it unknown; its log has a receipt by now"
            self._add("note", "late_receipt", problem, "see the receipt with `events`")
        elif row.state in OPEN_STATES and not (held or self._setting.owned):
            problem = f"it is {row.state.value} in the journal, and its worker is gone"
            self._add("note", "not_judged", problem, "the next supervisor that opens the directory judges it")

    def _receipts(self, receipt: dict[str, object] | None) -> None:
        row = self._row
        if receipt is None:
            problem = "the journal has the end of the run, its log has not"
            self._add("warning", "receipt_missing", problem, "nothing: the journal counts")
        elif receipt != row.receipt:
            problem = "the receipt in the log is not the one in the journal"
            self._add("error", "receipt_differs", problem, "compare both; restore from a backup")
        if (row.receipt or {}).get("outcome") != row.outcome:
            problem = "the outcome in the journal is not its receipt's"
            self._add("error", "outcome_differs", problem, "restore from a backup")

    def _add(self, severity: Severity, code: str, problem: str, hint: str, path: str | None = None) -> None:
        self._report.add(severity, code, path or self._path, problem, hint, self._row.run_id)


def _first_of(event: Event) -> int:
    """The first seq that an event answers for."""
    first = event.detail.get("first_seq") if event.kind == Kind.OUTPUT_DROPPED else None
    return first if isinstance(first, int) else event.seq
