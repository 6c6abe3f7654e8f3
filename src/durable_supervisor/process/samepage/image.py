"""An image of a worker's memory: a file without a name, which the workers of a zygote inherit.

    a page of rows: their count, then of each region: first byte, end, offset in this file
    the regions' bytes

It is made empty, before there are workers, and filled once, by a process that is as workers are but has
no run (`worker.model`).  It is complete when it is sealed, and nobody can change it from then on.
"""

from __future__ import annotations

import fcntl
import os
import struct

from ..machine_code import PAGE_BYTES
from .regions import Region

Row = tuple[int, int, int]  # first byte, end, offset

_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_COUNT = struct.Struct("=Q")
_ROW = struct.Struct("=QQQ")
_MOST_ROWS = (PAGE_BYTES - _COUNT.size) // _ROW.size


def create(lowest: int = 0) -> int:
    """The descriptor of an empty one, not below ``lowest``.  Raises OSError."""
    return lifted(os.memfd_create("worker-memory", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), lowest)


def lifted(fd: int, lowest: int) -> int:
    """A descriptor of the same, not below ``lowest``, in the place of ``fd``.  Raises OSError."""
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, lowest)
    finally:
        os.close(fd)


def lay_out(fd: int, regions: list[Region]) -> None:
    """Make room for these regions.  Their bytes are still to be written; `seal` it then.  Raises OSError."""
    rows, offset = [], PAGE_BYTES
    for first, end in regions[:_MOST_ROWS]:
        rows.append(_ROW.pack(first, end, offset))
        offset += end - first
    os.pwrite(fd, _COUNT.pack(len(rows)) + b"".join(rows), 0)
    os.truncate(fd, offset)


def seal(fd: int) -> None:
    """It is complete.  Raises OSError."""
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)


def is_sealed(fd: int) -> bool:
    """Raises OSError."""
    return fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _SEALS == _SEALS


def rows_of(fd: int) -> list[Row]:
    """Of its regions; without any where it is not what `lay_out` makes.  Raises OSError.

    Until it is sealed, whoever is of our user can open it in /proc and write to it, the program of a run
    for one.  Which bytes it holds is no matter, since only those are shared that are alike; but behind its
    end there are none, and who reads them is killed.
    """
    header = os.pread(fd, PAGE_BYTES, 0)
    if len(header) < PAGE_BYTES:
        return []
    (count,) = _COUNT.unpack_from(header)
    rows = [_ROW.unpack_from(header, _COUNT.size + at * _ROW.size) for at in range(min(count, _MOST_ROWS))]
    size = os.fstat(fd).st_size
    return [row for row in rows if _is_whole(row, size)]


def _is_whole(row: Row, size: int) -> bool:
    first, end, offset = row
    aligned = first % PAGE_BYTES == end % PAGE_BYTES == offset % PAGE_BYTES == 0
    return aligned and first < end and offset + end - first <= size
