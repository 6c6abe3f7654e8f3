"""Open an existing log to append: go on where it is whole, seal it where it is not.

The caller holds the lock on the attempt's first segment.  Nothing is cut: bytes
that are no record stay where they are, and a new segment begins behind them.
"""

from __future__ import annotations

import os

from durable_supervisor.model.events import Kind
from durable_supervisor.process.clock import Clock
from durable_supervisor.process.failpoints import failpoint

from .bounds import MAX_SEGMENT
from .create import create_segment, read_header
from .files import open_to_append, remove_leftovers
from .format import SegmentHeader, salt_of
from .paths import FIRST, RunPaths
from .quota import UNBOUNDED
from .segment import SegmentFile
from .tail import FOREIGN, MISSING, NOT_REGULAR, Tail
from .writer import LogWriter


class LogUnusableError(Exception):
    """Not a log of this run, or not the file whose lock is held; ``status`` as in `LogEvidence`."""

    def __init__(self, status: str) -> None:
        super().__init__(f"the run log is {status}")
        self.status = status


def open_for_append(
    paths: RunPaths, attempt: int, fd: int, *, boot_id: str, clock: Clock, directory_id: str = ""
) -> LogWriter:
    """A writer that goes on behind the last good record.  ``fd``: the first segment, O_RDWR, locked.

    After damage at the end, or under another boot than the log's (which may have
    lost records that readers saw), a new segment of the next generation begins with
    ``run.log_repaired {"reason", "segment", "offset", "skipped_bytes", "generation"}``.

    On success the writer owns ``fd``.  Raises `LogUnusableError`, `LogFullError` or OSError.
    """
    tail = Tail(paths, attempt)
    tail.refresh()
    if tail.unseen or tail.status in (MISSING, NOT_REGULAR, FOREIGN):
        raise LogUnusableError(tail.status)
    if not os.path.samestat(os.fstat(fd), os.lstat(paths.log(attempt))):
        raise LogUnusableError(FOREIGN)  # somebody put another file in its place
    head = tail.head if tail.header is not None or tail.has_records else _head_before(paths, attempt)
    last = tail.last_header
    base = tail.header or _header(paths, attempt, head, 1, boot_id, directory_id, clock)
    writer = LogWriter(
        fd, paths, base, segment_bytes=MAX_SEGMENT, stdout_cap=UNBOUNDED, stderr_cap=UNBOUNDED,
        truncate=False, clock=clock,
    )  # fmt: skip
    if last is not None and tail.bad is None and tail.boot_id == boot_id:
        remove_leftovers(paths, attempt)
        writer.resume(_reopen(paths, tail, fd), head, last, tail.facts)
        return writer
    header = _header(paths, attempt, head, tail.generation + 1, boot_id, base.directory_id, clock)
    header.detail = {"facts": tail.facts.to_dict()}
    skipped = _seal(paths, tail, head, fd, boot_id)
    failpoint("log.repairing")
    segment, _ = create_segment(paths, header)
    writer.resume(segment, head, header, tail.facts)
    _begin(writer, segment, {**skipped, "generation": header.generation})
    return writer


def _begin(writer: LogWriter, segment: SegmentFile, skipped: dict[str, object]) -> None:
    try:
        writer.append(Kind.RUN_LOG_REPAIRED, skipped)
        writer.flush()
        failpoint("log.repaired")
    except Exception:
        os.close(segment.fd)
        raise


def _seal(paths: RunPaths, tail: Tail, head: int, fd: int, boot_id: str) -> dict[str, object]:
    """Sync what is there before a successor takes a record; say what is skipped."""
    name = os.path.basename(paths.segment_file(tail.attempt, tail.key))
    if tail.key == FIRST:
        os.fdatasync(fd)
    else:
        last, _ = open_to_append(paths.segment_file(tail.attempt, tail.key))
        try:
            os.fdatasync(last)
        finally:
            os.close(last)
        if tail.key[0] == head + 1:
            # Not one good record in it, and the new segment needs its name: it steps aside, uncut.
            path = paths.segment_file(tail.attempt, tail.key)
            os.rename(path, f"{path}.g{tail.generation}")
    bad = tail.bad
    if bad is None:
        reason = "other_boot" if tail.last_header is not None else "empty"
        return {"reason": reason, "segment": name, "offset": tail.end, "skipped_bytes": 0}
    form = bad.to_dict(boot_id)
    return {
        "reason": form["class"],
        "segment": name,
        "offset": form["offset"],
        "skipped_bytes": form["length"],
    }


def _reopen(paths: RunPaths, tail: Tail, fd: int) -> SegmentFile:
    salt = salt_of(paths.run_id, tail.attempt, tail.key[0])
    if tail.key != FIRST:
        fd, _ = open_to_append(paths.segment_file(tail.attempt, tail.key))
    _, start = read_header(fd)
    segment = SegmentFile(fd, tail.key, salt, start, tail.end)
    segment.records = 1 if tail.records_in_last else 0
    return segment


def _header(
    paths: RunPaths, attempt: int, head: int, generation: int, boot_id: str, directory_id: str, clock: Clock
) -> SegmentHeader:
    return SegmentHeader(
        directory_id, paths.run_id, attempt, head + 1, generation, boot_id, clock.wall_ns(), {}
    )


def _head_before(paths: RunPaths, attempt: int) -> int:
    """The last seq of the attempts before, for a log that does not even tell its first."""
    for earlier in range(attempt - 1, 0, -1):
        tail = Tail(paths, earlier)
        tail.refresh()
        if tail.header is not None or tail.has_records:
            return tail.head
    return 0
