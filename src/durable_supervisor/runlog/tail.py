"""Follow the end of one attempt's log: its head, its lifecycle facts, its damage.

A further segment's header carries the facts so far, so only the first header
and the last segment are read; ``deep`` reads every segment.
"""

from __future__ import annotations

import os

from durable_supervisor.model.events import TERMINAL_KINDS
from durable_supervisor.process.shortage import is_shortage

from .facts import Facts
from .files import NotRegularError, list_segments, open_regular
from .format import OUTPUT, SYNC, HeaderError, SegmentHeader, decode_header, salt_of
from .paths import FIRST, RunPaths, SegmentKey
from .scan import Damage, Record, Scanner, record_in

OK, MISSING, NOT_REGULAR, FOREIGN, UNREADABLE, EMPTY = (
    "ok", "missing", "not_regular", "foreign", "unreadable", "empty",
)  # fmt: skip


class FoundDamage:
    """A stretch of damage, and what says whether a crash may have made it."""

    __slots__ = ("boot_id", "damage", "segment", "synced")

    def __init__(self, segment: str, damage: Damage, boot_id: str, synced: bool) -> None:
        self.segment = segment
        self.damage = damage
        self.boot_id = boot_id
        self.synced = synced

    def to_dict(self, boot_id: str | None) -> dict[str, object]:
        """``{"segment", "offset", "length", "class"}``; ``boot_id`` is that of the running kernel."""
        if self.damage.torn:
            kind = "torn_tail"
        else:
            other_boot = boot_id is not None and self.boot_id not in ("", boot_id)
            kind = "crash" if other_boot and not self.synced else "corrupt"
        return {
            "segment": self.segment,
            "offset": self.damage.offset,
            "length": self.damage.length,
            "class": kind,
        }


class Tail:
    """State of an attempt's log as of the last `refresh`.

    ``head``: last seq; before any record, the seq before the attempt's first.
    ``end``: offset behind the last good record of the last segment ``key``.
    ``bad``: what follows there, if it is no record.  ``word_synced``: a sync mark says that the last word
    (``facts.terminal``) is on the disk.
    """

    __slots__ = (
        "_first_status", "_offset", "_synced", "_word_end", "attempt", "bad", "boot_id", "damage",
        "directory_id", "end", "facts", "generation", "has_records", "head", "header", "key", "last_header",
        "paths", "records_in_last", "status", "unseen", "word_synced",
    )  # fmt: skip

    def __init__(self, paths: RunPaths, attempt: int, directory_id: str | None = None) -> None:
        self.paths = paths
        self.attempt = attempt
        self.directory_id = directory_id
        self.status = MISSING
        self.header: SegmentHeader | None = None
        self._restart()

    def _restart(self) -> None:
        self.key: SegmentKey = FIRST
        self.facts = Facts()
        self.head = self.header.first_seq - 1 if self.header is not None else 0
        self.generation = 1
        self.boot_id = ""
        self.last_header: SegmentHeader | None = None  # of the last segment
        self.has_records = False
        self.records_in_last = False
        self.damage: list[FoundDamage] = []
        self.bad: FoundDamage | None = None
        self.end = 0
        self._first_status = ""
        self.unseen = False  # the system did not let us read it: what it holds is not known
        self._offset = -1  # nothing scanned yet
        self._synced = 0
        self.word_synced = False
        self._word_end = 0  # in the last segment; 0: before it, or in its header

    def refresh(self, *, deep: bool = False) -> None:
        """Look again.  Never raises for what it may find on the disk.

        Raises OSError when we ourselves are short of something: no log is unreadable for that.
        """
        for _ in range(100):  # a compaction may take a listed segment away
            try:
                keys, hidden = list_segments(self.paths, self.attempt), False
            except OSError as problem:
                if is_shortage(problem):
                    raise
                keys, hidden = [FIRST], True
            try:
                self._look(keys, deep)
                if hidden and self.status in (OK, EMPTY):
                    break
                return
            except FileNotFoundError:
                self._restart()
                if keys == [FIRST]:
                    self.status = MISSING
                    return
            except NotRegularError:
                self.status = NOT_REGULAR
                return
            except OSError as problem:
                if is_shortage(problem):
                    raise
                break
        self.status = UNREADABLE
        self.unseen = True

    def take_short(self, data: bytes) -> bool:
        """Take in a whole first segment.  False unless all of it is good, and it ends with the receipt, which
        is on the disk.

        Nothing comes behind that, so no further segment needs to be looked for.
        """
        try:
            header, at = decode_header(data)
        except HeaderError:
            return False
        self._enter(FIRST, header)
        if self.status != OK:
            return False
        salt = salt_of(self.paths.run_id, self.attempt, FIRST[0])
        while at < len(data):
            record = record_in(data, at, salt, at)
            if record is None:
                return False
            self._note(record)
            at = record.end
        self.end = self._offset = at
        return self.facts.receipt is not None and self.word_synced

    def all_damage(self) -> list[FoundDamage]:
        return [*self.damage, *([] if self.bad is None else [self.bad])]

    def _look(self, keys: list[SegmentKey], deep: bool) -> None:
        if self._offset >= 0 and not deep and self.key in keys[-2:]:
            start = keys.index(self.key)
        else:
            self._restart()
            start = 0
            if len(keys) > 1:
                self._first_status = self._read_first()
                if self.status == FOREIGN:
                    return
                keys = keys[1:] if self._first_status else keys
                start = 0 if deep else self._newest_with_header(keys)
        strange = ""
        for key in keys[start:]:
            try:
                self._scan(key, fresh=key != self.key or self._offset < 0)
            except (NotRegularError, PermissionError) as problem:
                if key == FIRST:
                    raise
                strange = NOT_REGULAR if isinstance(problem, NotRegularError) else UNREADABLE
                self.unseen = True
            if self.status == FOREIGN:
                return
        self._judge()
        self.status = self._first_status or strange or self.status  # with what the other segments tell

    def _judge(self) -> None:
        if self.header is not None or self.has_records:
            self.status = OK
        elif self.key == FIRST and self.bad is None:
            self.status = EMPTY
        else:
            self.status = UNREADABLE

    def _read_first(self) -> str:
        """Take in the first header; a status when there is no such file to read."""
        try:
            fd, size = open_regular(self.paths.log(self.attempt))
        except NotRegularError:
            return NOT_REGULAR
        except FileNotFoundError:
            return MISSING
        except PermissionError:
            return UNREADABLE
        try:
            self._take_first(Scanner(fd, 0, 0, size).header())
        finally:
            os.close(fd)
        return ""

    def _take_first(self, header: SegmentHeader | None) -> None:
        self.header = header
        if header is None:
            return
        ours = (self.paths.run_id, self.attempt) == (header.run_id, header.attempt)
        if not ours or self.directory_id not in (None, header.directory_id):
            self.status = FOREIGN
            return
        self.status = OK
        self.head = max(self.head, header.first_seq - 1)
        self.boot_id = header.boot_id

    def _newest_with_header(self, keys: list[SegmentKey]) -> int:
        for index in range(len(keys) - 1, 0, -1):
            try:
                fd, size = open_regular(self.paths.segment_file(self.attempt, keys[index]))
            except (NotRegularError, PermissionError):
                continue
            try:
                if Scanner(fd, 0, 0, size).header() is not None:
                    return index
            finally:
                os.close(fd)
        return 0

    def _scan(self, key: SegmentKey, *, fresh: bool) -> None:
        fd, size = open_regular(self.paths.segment_file(self.attempt, key))
        try:
            salt = salt_of(self.paths.run_id, self.attempt, key[0])
            scanner = Scanner(fd, salt, max(self._offset, 0), size)
            if fresh:
                scanner.offset = 0
                if self.bad is not None:  # sealed: nobody will complete it any more
                    self.damage.append(self.bad)
                self._enter(key, scanner.header())
                if self.status == FOREIGN:
                    return
            self.bad = None
            if key != FIRST or scanner.offset or not scanner.is_blank():
                self._records(scanner)
            self.end = self._offset = scanner.offset
        finally:
            os.close(fd)

    def _enter(self, key: SegmentKey, header: SegmentHeader | None) -> None:
        self.key = key
        self.last_header = header
        self.records_in_last = False
        self._synced = self._word_end = 0
        if key == FIRST:
            self._take_first(header)
        elif header is not None:
            if not self.has_records:
                self.facts = Facts.from_dict(header.detail.get("facts"))
            self.has_records = True
            self.head = max(self.head, header.first_seq - 1)
        if header is not None:
            self.generation = max(self.generation, header.generation)
            self.boot_id = header.boot_id

    def _records(self, scanner: Scanner) -> None:
        first_of_segment = len(self.damage)
        while (item := scanner.step()) is not None:
            if isinstance(item, Damage):
                found = FoundDamage(os.path.basename(self._path()), item, self.boot_id, False)
                if item.at_tail:
                    self.bad = found
                    break
                self.damage.append(found)
            else:
                self._note(item)
        for found in [*self.damage[first_of_segment:], *([] if self.bad is None else [self.bad])]:
            found.synced = found.synced or found.damage.offset < self._synced

    def _note(self, record: Record) -> None:
        if record.rtype != SYNC:
            self._take(record)
            return
        synced = record.detail.get("synced")
        self._synced = max(self._synced, synced if isinstance(synced, int) else 0)
        if self.facts.terminal is not None and self._synced >= self._word_end:
            self.word_synced = True

    def _take(self, record: Record) -> None:
        self.records_in_last = True
        self.has_records = True
        if record.seq <= self.head:
            return  # a second copy
        self.head = record.seq
        if record.rtype != OUTPUT:
            self.facts.note(record.kind, record.detail)
        if record.kind in TERMINAL_KINDS:
            self._word_end = record.end
            self.word_synced = False

    def _path(self) -> str:
        return self.paths.segment_file(self.attempt, self.key)
