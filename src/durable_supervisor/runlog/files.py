"""Opening, creating, writing and syncing the files of a run log.

Every descriptor is O_CLOEXEC (PEP 446 makes that the default of `os.open`).
"""

from __future__ import annotations

import errno
import os
import stat

from .paths import FIRST, HALF_MADE, RunPaths, SegmentKey, parse_segment_name, segment_name

DIR_MODE = 0o700
FILE_MODE = 0o600
IOV_MAX = 1024
FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# O_NONBLOCK: opening a FIFO somebody put in a log's place must not wait for its other end.
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class NotRegularError(Exception):
    """A symlink, FIFO, socket, directory or device stands where a log should be."""


def open_regular(path: str, flags: int = READ_FLAGS) -> tuple[int, int]:
    """``(descriptor, size in bytes)`` of a regular file, opened to read.

    Raises `NotRegularError`, or OSError (FileNotFoundError when there is none).
    """
    try:
        fd = os.open(path, flags)
    except OSError as problem:
        if problem.errno in (errno.ELOOP, errno.ENXIO):  # a symlink; a socket
            raise NotRegularError(path) from None
        raise
    try:
        status = os.fstat(fd)
    except OSError:
        os.close(fd)
        raise
    if not stat.S_ISREG(status.st_mode):
        os.close(fd)
        raise NotRegularError(path)
    return fd, status.st_size


def open_to_append(path: str) -> tuple[int, int]:
    """As `open_regular`, for the holder of the log's lock."""
    return open_regular(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def list_segments(paths: RunPaths, attempt: int) -> list[SegmentKey]:
    """The attempt's segments in order, `FIRST` at the front; whatever a compacted one covers is left out.

    A crash (or a reader's timing) between making a compacted segment and removing
    what it replaces shows both; the range in its name settles it.
    """
    try:
        names = os.listdir(paths.segments_dir(attempt))
    except (FileNotFoundError, NotADirectoryError):
        return [FIRST]
    keys = sorted(
        (key for key in map(parse_segment_name, names) if key is not None),
        key=lambda key: (key[0], -key[1], -key[2]),
    )
    kept: list[SegmentKey] = [FIRST]
    covered = 0
    for key in keys:
        if key[0] > covered:
            kept.append(key)
            covered = max(covered, key[1])
    return kept


def remove_leftovers(paths: RunPaths, attempt: int) -> None:
    """Take away what a kill amid a compaction left: a half-made segment, and those that a made one covers.

    For the holder of the log's lock, and not after a power loss: what a torn one covers is the better copy.
    """
    folder = paths.segments_dir(attempt)
    kept = set(map(segment_name, list_segments(paths, attempt)))
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        covered = parse_segment_name(name) is not None and name not in kept
        if covered or name.endswith(HALF_MADE):
            remove(f"{folder}/{name}")


def make_dir(path: str) -> None:
    """A 0700 directory, whatever the umask; one that is there already is fine."""
    try:
        os.mkdir(path, DIR_MODE)
    except FileExistsError:
        return
    os.chmod(path, DIR_MODE)  # a umask can only have taken bits away


def create_file(path: str) -> int:
    """A new 0600 file opened to read and write.  Raises FileExistsError."""
    fd = os.open(path, _CREATE_FLAGS, FILE_MODE)
    try:
        os.fchmod(fd, FILE_MODE)
    except OSError:
        os.close(fd)
        raise
    return fd


def write_all(fd: int, buffers: list[bytes], offset: int, total: int) -> tuple[int, int]:
    """Write the buffers (``total`` bytes) one after the other at ``offset``.

    Returns ``(bytes written, errno or 0)``; short writes are gone on with.
    """
    written = 0
    while True:
        try:
            count = os.pwritev(fd, buffers[:IOV_MAX], offset + written)
        except OSError as problem:
            return written, problem.errno or errno.EIO
        written += count
        if written == total:
            return written, 0
        if count == 0:
            return written, errno.EIO
        buffers = _after(buffers, count)


def _after(buffers: list[bytes], count: int) -> list[bytes]:
    for index, buffer in enumerate(buffers):
        if count < len(buffer):
            return [buffer[count:], *buffers[index + 1 :]]
        count -= len(buffer)
    return []


def remove(path: str) -> None:
    """Unlink, if it can be done; what stays behind is never read."""
    try:
        os.unlink(path)
    except OSError:
        pass


def fsync_dir(path: str) -> None:
    """Make the names in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
