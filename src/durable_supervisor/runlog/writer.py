"""Append to a run's log: the one writer's side.

A `LogWriter` belongs to the process that holds the lock on the attempt's first
segment, and to one thread of it; only a `SyncJob` may run in another.
"""

from __future__ import annotations

import errno
import os

from durable_supervisor.process.clock import Clock
from durable_supervisor.process.failpoints import failpoint

from .create import replace_segment
from .drops import DISK_FULL, IO_ERROR, LIMIT
from .facts import Facts
from .files import FULL_ERRNOS
from .format import OUTPUT, SYNC, SegmentHeader, encode_json
from .paths import FIRST, RunPaths
from .quota import StreamQuota
from .rolling import LogFullError, SegmentedLog
from .segment import Pending, SegmentFile
from .sync import SyncJob

__all__ = ["LogFullError", "LogWriter"]

BATCH_BYTES = 1 << 20
BATCH_RECORDS = 400
MAX_CHUNK = 1 << 20  # a record's data


class LogWriter(SegmentedLog):
    """Appends records; ``head`` is the seq of the last one (perhaps not flushed yet).

    ``fd`` is the locked first segment, as `create.create_log` made it; it stays open until
    `close`.  ``segment_bytes``: see `bounds.segment_size`.  With ``truncate`` each stream
    keeps its head and tail within its cap; without, what is beyond the cap is counted
    and not stored.  ``clock`` has ``wall_ns()`` and ``elapsed_ns()``.  ``header_bytes``: how long the
    segment's header is, where that was read already.
    """

    __slots__ = ("_final",)

    def __init__(
        self, fd: int, paths: RunPaths, header: SegmentHeader, *, segment_bytes: int, stdout_cap: int,
        stderr_cap: int, truncate: bool, clock: Clock, header_bytes: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            fd, paths, header, segment_bytes=segment_bytes, stdout_cap=stdout_cap, stderr_cap=stderr_cap,
            truncate=truncate, clock=clock, header_bytes=header_bytes,
        )  # fmt: skip
        self._final: Pending | None = None

    def resume(self, segment: SegmentFile, head: int, header: SegmentHeader, facts: Facts) -> None:
        """Go on behind ``head`` in another segment (repair)."""
        self._segment.trim()
        self._segment = segment
        self._seq = head
        self._synced = 0
        self._header = header
        self._facts = facts
        if segment.key != FIRST:
            self._unsynced.dirs.add(self._paths.segments_dir(header.attempt))
        segment.keep_reserve()

    def stays_in_memory(self) -> None:
        """Its file has no name in any directory, so that there is none to sync."""
        self._unsynced.dirs.clear()

    @property
    def head(self) -> int:
        return self._seq

    @property
    def unsynced(self) -> int:
        """Bytes written or batched that no sync has covered."""
        waiting = sum(file.size for file in self._unsynced.files)
        return waiting + self._segment.end + self._segment.pending_bytes - self._synced

    @property
    def full(self) -> bool:
        """Is output being dropped because it cannot be written?"""
        return self._full != 0

    @property
    def deleted(self) -> bool:
        """Has the locked first segment no name any more?  Then no reader will ever find this log."""
        return os.fstat(self._lock_fd).st_nlink == 0

    def dropped(self, stream: str) -> int:
        """Bytes given to `append_output` that are not in the log (any more).

        Brings the log within its caps first: once the stream has ended, the number is final.
        """
        self._enforce()
        return self._quotas[stream].dropped

    def stored(self, stream: str) -> int:
        """Bytes of the stream that are in the log; as final as `dropped`."""
        return self._quotas[stream].total - self.dropped(stream)

    # -- records

    def append(self, kind: str, detail: dict[str, object]) -> int:
        """Batch an event and return its seq.  Raises ValueError when ``detail`` is no JSON."""
        return self._event(kind, detail)[2]

    def append_output(self, stream: str, data: bytes) -> int:
        """Batch output and return the seq of its last record; never blocks on a full disk, never raises.

        ``data`` must not change before the next `flush`.  What cannot be stored is
        counted, and told by an `output.dropped` event later; then the head is returned.
        """
        quota = self._quotas[stream]
        segment = self._segment
        size = len(data)
        offset = quota.total
        quota.total = offset + size
        fits = (
            0 < size <= MAX_CHUNK
            and not (self._full or self._failed)
            and quota.in_segment + size <= quota.slot
            and quota.total <= quota.hard_cap
            and (segment.size + size <= self._segment_bytes or not segment.records)
        )
        if fits and segment.room(size):
            return self._store(quota, offset, data)
        return self._place(quota, offset, data)

    def _store(self, quota: StreamQuota, offset: int, data: bytes) -> int:
        clock = self._clock
        segment = self._segment
        self._seq += 1
        meta = b'{"offset":%d}' % offset
        segment.put(OUTPUT, quota.flag, self._seq, clock.wall_ns(), clock.elapsed_ns(), meta, data)
        quota.in_segment += len(data)
        if segment.pending_bytes >= BATCH_BYTES or len(segment.pending) >= BATCH_RECORDS:
            self._try_flush()
        return self._seq

    def _place(self, quota: StreamQuota, offset: int, data: bytes) -> int:
        """The rare cases: a new segment, a full disk, a cap."""
        fits = quota.within_hard_cap(offset, len(data))
        if fits < len(data):
            quota.refuse(len(data) - fits)
            data = data[:fits]
        head = quota.head_piece(len(data), first=self._segment.key == FIRST)
        if head:
            self._put(quota, offset, data[:head])
            offset += head
            data = data[head:]
        excess = len(data) - quota.tail_budget
        if excess > 0:
            self._drop_now(quota, excess)
            offset += excess
            data = data[excess:]
        for at in range(0, len(data), MAX_CHUNK):
            self._put(quota, offset + at, data[at : at + MAX_CHUNK])
        return self._seq

    def _put(self, quota: StreamQuota, offset: int, data: bytes) -> None:
        if self._full and not self._is_back(len(data)):
            quota.lose(len(data))
            return
        segment = self._segment
        beyond = quota.in_segment + len(data) > quota.slot or segment.size + len(data) > self._segment_bytes
        if (self._failed or (segment.records and beyond)) and not self._roll():
            quota.lose(len(data))
        elif self._full or not self._segment.room(len(data)):
            self._become_full(self._full or errno.ENOSPC)
            quota.lose(len(data))
        else:
            self._store(quota, offset, data)

    def _drop_now(self, quota: StreamQuota, size: int) -> None:
        """Part of a chunk that is larger than all the tail may be: counted, and told in its place."""
        quota.dropped += size
        self._tell(quota, size, LIMIT)

    def _is_back(self, size: int) -> bool:
        """Can output be stored again?  Looked at now and then: asking a full disk can be slow."""
        if self._clock.elapsed_ns() < self._retry_at:
            return False
        if not self._segment.room(size) or not self._enforce():
            self._become_full(self._full)
            return False
        self._tell_lost()
        self._full = 0
        return True

    def _tell_lost(self) -> None:
        reason = DISK_FULL if self._full in FULL_ERRNOS or not self._full else IO_ERROR
        for quota in self._quotas.values():
            if quota.lost:
                self._tell(quota, quota.lost, reason)
                quota.lost = 0

    # -- durability

    def sync(self) -> bool:
        """Make all that was appended durable, blocking; False when the system could not.

        After False the log goes on in a new segment.  Raises `LogFullError` as `flush` does.
        """
        job = self.begin_sync()
        error: OSError | None = None
        try:
            job()
        except OSError as problem:
            error = problem
        self.end_sync(job, error)
        return error is None

    def begin_sync(self) -> SyncJob:
        """Flush, and give the sync as a callable for another thread; appending may go on meanwhile."""
        self.flush()
        segment, waiting = self._segment, self._unsynced
        job = SyncJob(segment.fd, segment.key, segment.end, waiting.files, waiting.dirs)
        waiting.dirs = set()
        return job

    def end_sync(self, job: SyncJob, error: OSError | None) -> None:
        """Take in how a `SyncJob` went."""
        job.close()
        segment = self._segment
        self._unsynced.forget(job.sealed)
        if error is not None:
            self._unsynced.dirs |= job.dirs
            if job.key == segment.key:
                self._failed = error.errno or 1
            else:
                self._unsynced.forget([job.key])
                self._warn(error.errno or 1)
        elif job.key == segment.key and not self._failed:
            unsynced = segment.end > job.end or bool(segment.pending)
            self._synced = max(self._synced, job.end)
            self._mark(job.end)
            if not unsynced:  # a mark alone is no reason to sync again
                self._synced = segment.end + segment.pending_bytes

    def _mark(self, end: int) -> None:
        """Say in the open segment that it is on the disk up to ``end``."""
        mark = encode_json({"synced": end})
        self._segment.put(SYNC, 0, self._seq, self._clock.wall_ns(), self._clock.elapsed_ns(), mark, b"")

    def _sync_segment(self) -> bool:
        try:
            os.fdatasync(self._segment.fd)
        except OSError as problem:
            self._failed = problem.errno or 1
            return False
        self._synced = self._segment.end
        return True

    def keep_whole_reserve(self) -> None:
        """For a run that lasts; a short one may do with less: see `segment`."""
        self._segment.keep_whole_reserve()

    def settle(self) -> None:
        """No more output will come: bring it within its caps, so that `dropped` is final for the receipt."""
        self._tell_lost()
        for quota in self._quotas.values():
            if quota.refused:
                self._tell(quota, quota.refused, LIMIT)
                quota.refused = 0
        self._enforce()

    def finish(self, kind: str, detail: dict[str, object]) -> int:
        """Append the attempt's last word and make the whole log durable; returns its seq.

        A mark behind it says so: until that is there, or its writer is gone, no reader believes the word.
        Raises `LogFullError`: call it again, the same record is gone on with.
        """
        if self._final is None:
            self.settle()
            while self._unsynced.files:  # what the receipt speaks of is on the disk before it
                self._sync_oldest()
            self._final = self._event(kind, detail)
        self._segment.nothing_follows()
        self.flush()
        failpoint("log.last_word")
        while self._unsynced.files:
            self._unsynced.sync_oldest()
        if self._failed or not self._sync_segment():
            self._reseat(self._final)
        try:
            self._unsynced.sync_dirs()
        except OSError as problem:
            raise LogFullError(problem.errno or 0) from problem
        self._mark(self._segment.end)
        try:
            self._segment.flush()
        except OSError:  # without the mark a reader has to sync, once we are gone
            pass
        return self._final[2]

    def _reseat(self, final: Pending) -> None:
        """The last record once more, in a file of its own whose sync is a first one.

        Readers take one of the two copies: both have the same seq.
        """
        header = self._next_header()
        header.first_seq = final[2]
        try:
            new = replace_segment(self._paths, header, final)
        except OSError as problem:
            raise LogFullError(problem.errno or 0) from problem
        self._unsynced.dirs |= {self._paths.segments_dir(header.attempt), self._paths.dir}
        self._leave(self._segment)
        self._segment = new
        self._synced = new.end

    def trim(self) -> None:
        """Give back the space reserved behind the last record.  For when nothing more is to come."""
        self._segment.trim()

    def close(self) -> None:
        """Give back reserved space and close the files; the lock goes with them.  Flushes nothing."""
        self.trim()
        self._unsynced.close()
        if self._segment.fd != self._lock_fd:
            os.close(self._segment.fd)
        os.close(self._lock_fd)
