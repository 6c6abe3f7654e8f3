"""Keep an attempt's output within its caps: compact the segments between head and tail.

Beyond a stream's cap the oldest segment behind the first one is replaced by a
copy without that stream's output: every other record stays, and each unbroken
run of dropped seqs becomes one `output.dropped` event.  Neighbours that were
compacted are merged, so hours of output leave a handful of files.
"""

from __future__ import annotations

import errno
import os

from durable_supervisor.process.failpoints import failpoint

from .drops import LIMIT, DropRun, absorbable
from .files import create_file, fsync_dir, open_regular, remove, write_all
from .format import EVENT, OUTPUT, SYNC, SegmentHeader, encode_record, salt_of
from .paths import RunPaths, SegmentKey
from .scan import Damage, Record, Scanner
from .sync import Unsynced, Waiting

MIN_SEGMENT = 4 * 1024
MAX_SEGMENT = 4 * 1024 * 1024
_PIECE = 1024 * 1024


def segment_size(stdout_cap: int, stderr_cap: int) -> int:
    """Bytes of records in a segment: an eighth of the smaller cap, within 4 KiB and 4 MiB."""
    return min(max(min(stdout_cap, stderr_cap) // 8, MIN_SEGMENT), MAX_SEGMENT)


class ClosedSegment:
    """A sealed segment: its name, last seq, size of its records and stored bytes of (stdout, stderr).

    ``lasting``: it also holds records that are no output.
    """

    __slots__ = ("key", "last_seq", "lasting", "output", "size")

    def __init__(
        self, key: SegmentKey, last_seq: int, size: int, output: tuple[int, int], lasting: bool
    ) -> None:
        self.key = key
        self.last_seq = last_seq
        self.size = size
        self.output = output
        self.lasting = lasting


class Bounds:
    """The sealed segments of an attempt, and the caps of (stdout, stderr) in bytes.

    Where a stretch holds nothing but output that goes, its replacement is not synced at
    once but handed to ``unsynced``: all that a power loss could turn it into is the same
    range with another reason.  So a flood is not held up by the disk.
    """

    __slots__ = ("_caps", "_dropped", "_header", "_paths", "_segment_bytes", "_unsynced", "closed")

    def __init__(
        self, paths: RunPaths, header: SegmentHeader, segment_bytes: int, caps: tuple[int, int],
        unsynced: Unsynced,
    ) -> None:  # fmt: skip
        self._paths = paths
        self._header = header
        self._unsynced = unsynced
        self._segment_bytes = segment_bytes
        self._caps = caps
        self.closed: list[ClosedSegment] = []
        self._dropped = [0, 0]

    def take_dropped(self) -> tuple[int, int]:
        """The bytes of (stdout, stderr) dropped since the last call."""
        stdout, stderr = self._dropped
        self._dropped = [0, 0]
        return stdout, stderr

    def enforce(self, live: tuple[int, int]) -> None:
        """Compact until both streams fit; ``live`` is what the open segment holds of them.

        Raises OSError; then nothing is lost, and a later call goes on.
        """
        kept = [live[i] + sum(segment.output[i] for segment in self.closed) for i in (0, 1)]
        while True:
            over = [kept[i] > self._caps[i] for i in (0, 1)]
            stretch = self._stretch(over, kept)
            if stretch is None:
                return
            for i, size in enumerate(self._compact(*stretch, over)):
                self._dropped[i] += size
                kept[i] -= size

    def _stretch(self, over: list[bool], kept: list[int]) -> tuple[int, int] | None:
        """``(first, last)`` index of the oldest segments to compact together; None when all fits.

        The first segment is the head, and its file is the lock: it stays.  One segment
        more than needed goes, so that a flood costs one compaction for every second segment.
        """
        need = [kept[i] - self._caps[i] for i in (0, 1)]
        first = last = 0
        size = 0
        for index in range(1, len(self.closed)):
            output = self.closed[index].output
            streams = [i for i in (0, 1) if over[i] and output[i]]
            if first and (size > self._segment_bytes or not self._go(streams, need, output)):
                break
            if streams:
                first = first or index
                last = index
                need = [need[i] - output[i] for i in (0, 1)]
            if first:
                size += sum(output[i] for i in (0, 1) if not over[i])
        return (first, last) if first else None

    def _go(self, streams: list[int], need: list[int], output: tuple[int, int]) -> bool:
        return all(need[i] > 0 or output[i] <= need[i] + self._caps[i] // 8 for i in streams)

    def _compact(self, first: int, last: int, over: list[bool]) -> tuple[int, int]:
        """Replace a stretch, and the small segments right before it; returns the bytes dropped."""
        kept = [0, 0]
        dropped = [0, 0]
        for segment in self.closed[first : last + 1]:
            for i in (0, 1):
                (dropped if over[i] else kept)[i] += segment.output[i]
        room = self._segment_bytes - sum(kept)
        lasting = any(kept) or any(segment.lasting for segment in self.closed[first : last + 1])
        while first > 1 and self.closed[first - 1].size <= room:
            before = self.closed[first - 1]
            if not lasting and (before.lasting or any(before.output)):
                break  # as a neighbour it costs one more small file, inside it would cost a sync each time
            first -= 1
            room -= self.closed[first].size
            for i in (0, 1):
                kept[i] += self.closed[first].output[i]
        sources = [segment.key for segment in self.closed[first : last + 1]]
        mask = sum(1 << i for i in (0, 1) if over[i])
        for source in sources:
            mask |= source[2]
        last_seq = self.closed[last].last_seq
        key = (sources[0][0], last_seq, mask)
        fd, size = rewrite(self._paths, self._header, sources, key, over, durable=lasting)
        self._unsynced.forget(sources)
        self._unsynced.dirs.add(self._paths.segments_dir(self._header.attempt))
        if lasting:
            os.close(fd)
        else:
            self._unsynced.files.append(Waiting(key, fd, size, owned=True))
        self.closed[first : last + 1] = [ClosedSegment(key, last_seq, size, (kept[0], kept[1]), lasting)]
        return dropped[0], dropped[1]


def rewrite(
    paths: RunPaths, header: SegmentHeader, sources: list[SegmentKey], key: SegmentKey, drop: list[bool],
    *, durable: bool,
) -> tuple[int, int]:  # fmt: skip
    """Make the segment ``key`` from ``sources`` without the streams to ``drop``.

    Complete under another name first, then renamed, then the sources go: a process
    killed at any step leaves every record readable, and readers go by the name's
    range.  With ``durable`` the same holds for a power loss.  Returns the new file's
    descriptor and its records' size.
    """
    path = paths.segment_file(header.attempt, key)
    half = path + ".tmp"
    remove(half)
    fd = create_file(half)
    try:
        size = _Copy(paths, header, key, drop, fd).run(sources)
        if durable:
            os.fdatasync(fd)
        failpoint("log.compacting")
        os.rename(half, path)
        if durable:
            fsync_dir(paths.segments_dir(header.attempt))
    except OSError:
        os.close(fd)
        remove(half)
        raise
    failpoint("log.compacted")
    for source in sources:
        if source != key:
            remove(paths.segment_file(header.attempt, source))
    return fd, size


class _Copy:
    """Writes the records of some segments into a new one."""

    def __init__(
        self, paths: RunPaths, header: SegmentHeader, key: SegmentKey, drop: list[bool], fd: int
    ) -> None:
        self._paths = paths
        self._header = header
        self._salt = salt_of(header.run_id, header.attempt, key[0])
        self._drop = drop
        self._fd = fd
        self._buffers: list[bytes] = []
        self._end = 0
        self._unwritten = 0
        self._run: DropRun | None = None
        self._last_seq = key[0] - 1

    def run(self, sources: list[SegmentKey]) -> int:
        start = 0
        for key in sources:
            fd, size = open_regular(self._paths.segment_file(self._header.attempt, key))
            try:
                salt = salt_of(self._header.run_id, self._header.attempt, key[0])
                scanner = Scanner(fd, salt, 0, size)
                header = scanner.header()
                if not self._end:
                    self._add((header or self._header).encode())
                    start = self._end
                while (item := scanner.step()) is not None:
                    if isinstance(item, Damage):
                        if item.at_tail:
                            break
                    elif item.rtype != SYNC and item.seq > self._last_seq:
                        self._record(item)
            finally:
                os.close(fd)
        self._end_run()
        self._write()
        return self._end - start

    def _record(self, record: Record) -> None:
        stream = record.flags - 1
        is_dropped = record.rtype == OUTPUT and stream in (0, 1) and self._drop[stream]
        if not is_dropped and not absorbable(record.kind, record.detail):
            self._end_run()
            self._emit(
                record.rtype, record.flags, record.seq, record.wall_ns, record.elapsed_ns, record.meta,
                record.data,
            )  # fmt: skip
        else:
            if self._run is not None and record.first_seq != self._last_seq + 1:
                self._end_run()  # never claim seqs that are missing for another reason
            if self._run is None:
                reason = str(record.detail.get("reason", LIMIT))
                self._run = DropRun(record.first_seq, LIMIT if is_dropped else reason)
            self._run.take(record.seq, record.wall_ns, record.elapsed_ns)
            if is_dropped:
                self._run.take_output(stream, len(record.data))
                self._run.reason = LIMIT
            else:
                self._run.absorb(record.detail)
        self._last_seq = record.seq

    def _end_run(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            self._emit(EVENT, 0, run.seq, run.wall_ns, run.elapsed_ns, run.meta(), b"")

    def _emit(
        self, rtype: int, flags: int, seq: int, wall_ns: int, elapsed_ns: int, meta: bytes, data: bytes
    ) -> None:
        head = encode_record(self._salt, self._end, rtype, flags, seq, wall_ns, elapsed_ns, meta, data)
        self._add(head)
        if data:
            self._add(data)

    def _add(self, buffer: bytes) -> None:
        self._buffers.append(buffer)
        self._end += len(buffer)
        self._unwritten += len(buffer)
        if self._unwritten >= _PIECE:
            self._write()

    def _write(self) -> None:
        if not self._unwritten:
            return
        at = self._end - self._unwritten
        _, number = write_all(self._fd, self._buffers, at, self._unwritten)
        if number:
            raise OSError(number or errno.EIO, os.strerror(number))
        self._buffers = []
        self._unwritten = 0
