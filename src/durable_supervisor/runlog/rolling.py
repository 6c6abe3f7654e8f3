"""An attempt's log as a row of segments: events, batches, rolls, caps.

`writer.LogWriter` adds output and durability.
"""

from __future__ import annotations

import os

from durable_supervisor.model.events import Kind
from durable_supervisor.process.clock import Clock
from durable_supervisor.process.failpoints import failpoint

from .alloc import block_size
from .bounds import Bounds, ClosedSegment
from .create import create_segment, read_header
from .drops import DISK_FULL, IO_ERROR, DropRun, event_meta, shed
from .facts import Facts
from .files import FULL_ERRNOS
from .format import EVENT, SegmentHeader, salt_of
from .paths import FIRST, RunPaths
from .quota import UNBOUNDED, StreamQuota
from .segment import Pending, SegmentFile
from .sync import Unsynced, Waiting

RETRY_NS = 100_000_000  # between two looks at a full disk


class LogFullError(Exception):
    """A lifecycle record could not be written, or a receipt not be made durable.

    Nothing is lost: the records stay batched.  Call `LogWriter.flush` (or `finish`)
    again, with the lock held.  ``errno`` is the system's reason.
    """

    def __init__(self, number: int) -> None:
        super().__init__(os.strerror(number))
        self.errno = number


class SegmentedLog:
    """The open segment, the sealed ones, and what is owed to either."""

    __slots__ = (
        "_bounds", "_clock", "_facts", "_failed", "_full", "_header", "_lock_fd", "_paths",
        "_quotas", "_retry_at", "_segment", "_segment_bytes", "_seq", "_synced", "_unsynced",
    )  # fmt: skip

    def __init__(
        self, fd: int, paths: RunPaths, header: SegmentHeader, *, segment_bytes: int, stdout_cap: int,
        stderr_cap: int, truncate: bool, clock: Clock, header_bytes: int | None = None,
    ) -> None:  # fmt: skip
        start = read_header(fd)[1] if header_bytes is None else header_bytes
        self._lock_fd = fd
        self._paths = paths
        self._header = header
        self._clock = clock
        self._segment_bytes = segment_bytes
        salt = salt_of(header.run_id, header.attempt, 0)
        self._segment = SegmentFile(fd, FIRST, salt, start, os.fstat(fd).st_size)
        self._seq = header.first_seq - 1
        self._quotas = {
            "stdout": StreamQuota("stdout", 1, stdout_cap, truncate),
            "stderr": StreamQuota("stderr", 2, stderr_cap, truncate),
        }
        self._unsynced = Unsynced({paths.dir})  # names in it are not durable yet
        caps = (stdout_cap, stderr_cap) if truncate else (UNBOUNDED, UNBOUNDED)
        self._bounds = Bounds(paths, header, segment_bytes, caps, self._unsynced)
        self._facts = Facts()
        self._synced = 0  # bytes of the open segment known to be on the disk
        self._failed = 0  # errno of a sync of the open segment that failed
        self._full = 0  # errno of what stands in the way of output
        self._retry_at = 0
        self._segment.target = start + segment_bytes
        self._segment.spare_blocks(block_size(fd))

    def _event(self, kind: str, detail: dict[str, object]) -> Pending:
        meta = event_meta(kind, detail)
        segment = self._segment
        if self._failed or (segment.records and segment.size + len(meta) > self._segment_bytes):
            self._roll()  # where that cannot be done now, the segment just gets longer
        self._seq += 1
        record: Pending = (
            EVENT, 0, self._seq, self._clock.wall_ns(), self._clock.elapsed_ns(), meta, b""
        )  # fmt: skip
        self._segment.put(*record)
        if kind != Kind.OUTPUT_DROPPED:
            self._segment.lasting = True
        self._facts.note(kind, detail)
        return record

    def _tell(self, quota: StreamQuota, size: int, reason: str) -> None:
        run = DropRun(self._seq + 1, reason)
        run.sizes[quota.flag - 1] = size
        self._event(Kind.OUTPUT_DROPPED, run.detail())

    def flush(self) -> None:
        """Write the batch.  Raises `LogFullError`; output of the batch is dropped before it comes to that."""
        try:
            self._segment.flush()
            return
        except OSError as problem:
            number = problem.errno or 0
        if self._shed(number):
            try:
                self._segment.flush()
                return
            except OSError as problem:
                number = problem.errno or 0
        if self._segment.pending:
            raise LogFullError(number)

    def _try_flush(self) -> bool:
        try:
            self.flush()
        except LogFullError as problem:
            self._become_full(problem.errno)
            return False
        return True

    def _shed(self, number: int) -> bool:
        """Put one event in the place of each run of batched output.  False when there was none.

        Only where space cannot be reserved ahead: elsewhere output is refused before it has a seq.
        """
        self._become_full(number)
        if not self._segment.outputs_pending():
            return False
        kept, sizes = shed(self._segment.pending, DISK_FULL if number in FULL_ERRNOS else IO_ERROR)
        for quota, size in zip(self._quotas.values(), sizes, strict=True):
            quota.dropped += size
            quota.in_segment -= size
        self._segment.replace_pending(kept)
        return True

    def _become_full(self, number: int) -> None:
        self._full = number
        self._retry_at = self._clock.elapsed_ns() + RETRY_NS

    def _roll(self) -> bool:
        """Go on in a new segment; False when that is impossible now.

        The old one is synced by the next sync, or when too many wait: to do
        it here would hold up a program that writes faster than the disk.  Where its
        sync has failed, it is not asked again (it would lie): a warning says so.
        """
        if not self._try_flush():
            return False
        old = self._segment
        failpoint("log.rolling")
        try:
            new, made_dir = create_segment(self._paths, self._next_header())
        except OSError as problem:
            self._become_full(problem.errno or 0)
            return False
        self._unsynced.dirs.add(self._paths.segments_dir(self._header.attempt))
        if made_dir:
            self._unsynced.dirs.add(self._paths.dir)
        new.target = new.end + self._segment_bytes
        failed = self._failed
        self._leave(old)
        self._segment = new
        failpoint("log.rolled")
        if failed:
            self._warn(failed)
        self._enforce()
        while self._unsynced.many:
            self._sync_oldest()
        return True

    def _warn(self, number: int) -> None:
        self._event(Kind.RUN_WARNING, {"reason": "sync_failed", "errno": number})

    def _sync_oldest(self) -> None:
        failed = self._unsynced.sync_oldest()
        if failed:
            self._warn(failed)

    def _leave(self, old: SegmentFile) -> None:
        stdout, stderr = self._quotas.values()
        output = (stdout.in_segment, stderr.in_segment)
        self._bounds.closed.append(ClosedSegment(old.key, self._seq, old.size, output, old.lasting))
        stdout.in_segment = stderr.in_segment = 0
        old.trim(exact=False)
        sealed = Waiting(old.key, old.fd, old.end, owned=old.fd != self._lock_fd)
        if self._failed or self._synced >= old.end:
            sealed.close()
        else:
            self._unsynced.files.append(sealed)
        self._synced = 0
        self._failed = 0

    def _next_header(self) -> SegmentHeader:
        old = self._header
        return SegmentHeader(
            old.directory_id, old.run_id, old.attempt, self._seq + 1, old.generation, old.boot_id,
            self._clock.wall_ns(), {"facts": self._facts.to_dict()},
        )  # fmt: skip

    def _enforce(self) -> bool:
        if not self._bounds.closed:
            return True  # the first segment stays, whatever the caps
        stdout, stderr = self._quotas.values()
        try:
            self._bounds.enforce((stdout.in_segment, stderr.in_segment))
        except OSError as problem:
            self._become_full(problem.errno or 0)
            return False
        finally:
            for quota, size in zip((stdout, stderr), self._bounds.take_dropped(), strict=True):
                quota.dropped += size
        return True
