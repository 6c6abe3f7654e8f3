"""Make the files of a run log."""

from __future__ import annotations

import os

from .files import create_file, fsync_dir, make_dir, remove, write_all
from .format import (
    HEADER_SIZE,
    HeaderError,
    SegmentHeader,
    decode_header,
    encode_record,
    header_length,
    salt_of,
)
from .paths import RunPaths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .segment import Pending, SegmentFile


def create_log(paths: RunPaths, header: SegmentHeader) -> int:
    """The first segment of an attempt, with its header, 0600 from the start; a descriptor to lock and append.

    Makes the shard's directory when it is the first there.  Nothing is synced yet:
    the writer's first sync does that.  Raises FileExistsError when the attempt has
    a log, OSError otherwise; then no file is left behind.
    """
    path = paths.log(header.attempt)
    try:
        fd = create_file(path)
    except FileNotFoundError:
        make_shard(paths.runs_dir, paths.dir)
        fd = create_file(path)
    _fill(fd, path, [header.encode()])
    return fd


def make_shard(runs_dir: str, path: str) -> None:
    """A shard's directory, its name on the disk: that is once a shard, so that no worker has to.

    Raises OSError; then there is none, since who finds one does not sync it.  One that an owner made just
    before it was killed is synced at the opening.
    """
    make_dir(path)
    try:
        fsync_dir(runs_dir)
    except OSError:
        os.rmdir(path)
        raise


def create_segment(paths: RunPaths, header: SegmentHeader) -> tuple[SegmentFile, bool]:
    """A further segment, named by ``header.first_seq``, and whether it is the attempt's first such.

    Raises OSError; then no file is left behind.
    """
    path = paths.segment(header.attempt, header.first_seq)
    made_dir = False
    try:
        fd = create_file(path)
    except FileNotFoundError:
        make_dir(paths.segments_dir(header.attempt))
        made_dir = True
        fd = create_file(path)
    text = header.encode()
    _fill(fd, path, [text])
    return _segment_file(fd, header, len(text), len(text)), made_dir


def replace_segment(paths: RunPaths, header: SegmentHeader, record: Pending) -> SegmentFile:
    """A segment of just one record, synced before it gets its name (perhaps in place of a failed one)."""
    path = paths.segment(header.attempt, header.first_seq)
    half = path + ".tmp"
    remove(half)
    make_dir(paths.segments_dir(header.attempt))
    fd = create_file(half)
    text = header.encode()
    rtype, flags, seq, wall_ns, elapsed_ns, meta, data = record
    salt = salt_of(header.run_id, header.attempt, header.first_seq)
    head = encode_record(salt, len(text), rtype, flags, seq, wall_ns, elapsed_ns, meta, data)
    buffers = [text, head, data] if data else [text, head]
    _fill(fd, half, buffers)
    try:
        os.fdatasync(fd)
        os.rename(half, path)
    except OSError:
        os.close(fd)
        raise
    return _segment_file(fd, header, len(text), sum(map(len, buffers)))


def read_header(fd: int) -> tuple[SegmentHeader | None, int]:
    """The header of an open segment and its length; ``(None, 0)`` when it is damaged or cut."""
    start = os.pread(fd, 4096, 0)
    length = header_length(start[:HEADER_SIZE])
    if length > len(start):
        start = os.pread(fd, min(length, os.fstat(fd).st_size), 0)
    try:
        return decode_header(start[:length])
    except HeaderError:
        return None, 0


def _segment_file(fd: int, header: SegmentHeader, start: int, end: int) -> SegmentFile:
    from .segment import SegmentFile  # for who writes on: a supervisor, which makes the first one, does not

    salt = salt_of(header.run_id, header.attempt, header.first_seq)
    return SegmentFile(fd, (header.first_seq, 0, 0), salt, start, end)


def _fill(fd: int, path: str, buffers: list[bytes]) -> None:
    _, number = write_all(fd, buffers, 0, sum(map(len, buffers)))
    if number:
        os.close(fd)
        remove(path)
        raise OSError(number, os.strerror(number), path)
