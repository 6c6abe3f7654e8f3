"""Copy the log of one run, while its worker may be writing it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from ..bundle.snapshot import Segment, Snapshot
from ..model.errors import SupervisorError
from ..process.shortage import is_shortage
from ..runlog.create import read_header
from ..runlog.files import create_file, make_dir, write_all
from ..runlog.paths import FIRST, RunPaths
from ..runlog.tail import Tail

_CHUNK = 1 << 20


class UnreadableError(Exception):
    """The original does not give it."""


Check = Callable[[], None]
"""Called now and then: raises where nobody wants the rest any more."""


def copy_log(log: Snapshot, to: RunPaths, ids: tuple[str, str], check: Check) -> None:
    """Every segment, byte by byte, but for the directory's id in the headers: from ``ids[0]`` to ``ids[1]``.

    Nothing is synced yet.  Raises `UnreadableError`; OSError where it cannot be written.
    """
    for segment in log.segments:
        path = to.segment_file(segment.attempt, segment.key)
        make_dir(to.dir)
        make_dir(os.path.dirname(path))
        fd = create_file(path)
        try:
            _copy_segment(segment, fd, ids, check)
        finally:
            os.close(fd)


def hold(paths: RunPaths, attempts: int) -> Snapshot:
    """The log, held open.  Raises `UnreadableError`; OSError where we ourselves are short of something."""
    try:
        return Snapshot(paths, attempts)
    except SupervisorError as error:  # also what is no file among its segments
        raise UnreadableError(error.message) from error
    except OSError as error:
        if is_shortage(error):
            raise
        raise UnreadableError(os.strerror(error.errno or errno.EIO)) from error


def cut_unfinished(paths: RunPaths, attempt: int) -> None:
    """Leave out the record, or segment, that was just being written: the copy ends with a whole record."""
    tail = Tail(paths, attempt)
    tail.refresh()
    path = paths.segment_file(attempt, tail.key)
    if tail.last_header is None and tail.key != FIRST and os.path.getsize(path) == 0:
        os.unlink(path)
    elif tail.bad is not None and tail.bad.damage.torn:
        os.truncate(path, tail.end)


def _copy_segment(segment: Segment, fd: int, ids: tuple[str, str], check: Check) -> None:
    at = _put(fd, _renamed(segment, ids), 0)
    while at < segment.size:
        check()
        at = _put(fd, _read(segment, at), at)


def _read(segment: Segment, at: int) -> bytes:
    try:
        data = os.pread(segment.fd, min(_CHUNK, segment.size - at), at)
    except OSError as error:
        raise UnreadableError(os.strerror(error.errno or errno.EIO)) from error
    if not data:
        raise UnreadableError("it became shorter while it was copied")
    return data


def _renamed(segment: Segment, ids: tuple[str, str]) -> bytes:
    """The header with the copy's id in it; nothing where it is damaged, or of another directory.

    Ids are of one length, and records are told apart by run, attempt and offset: they stay good.
    """
    try:
        header, length = read_header(segment.fd)
    except OSError as error:
        raise UnreadableError(os.strerror(error.errno or errno.EIO)) from error
    if header is None or header.directory_id != ids[0]:
        return b""
    header.directory_id = ids[1]
    text = header.encode()
    if len(text) != length:
        raise ValueError("a directory's ids are of one length")
    return text


def _put(fd: int, data: bytes, at: int) -> int:
    _, number = write_all(fd, [data], at, len(data))
    if number:
        raise OSError(number, os.strerror(number))
    return at + len(data)
