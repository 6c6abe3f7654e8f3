"""The pages of memory that a process has for itself, and how to have them before they are written to.

A forked process shares its parent's memory; the first write to a page costs it a fault and a copy.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable

from . import own
from .machine_code import PAGE_BYTES

Range = tuple[int, int]  # first byte, and how many: whole pages

_WRITABLE = b" rw-p "
_RANGE = struct.Struct("=QQ")
_ENTRY = struct.Struct("=Q")
_PRESENT, _EXCLUSIVE = 1 << 63, 1 << 56  # of an entry of /proc/<pid>/pagemap
_MADV_POPULATE_WRITE = 23
_libc = ctypes.CDLL(None)
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def written_by(work: Callable[[], None]) -> bytes:
    """Ranges, for `take`: the pages to which ``work`` writes, as a child that does it finds out.

    Empty where the child fails, or the kernel does not tell.  Raises OSError.
    """
    told = os.memfd_create("pages", os.MFD_CLOEXEC)
    try:
        pid = os.fork()
        if pid == 0:
            try:
                work()
                os.write(told, b"".join(_RANGE.pack(*one) for one in _held_alone()))
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        return os.pread(told, os.fstat(told).st_size, 0)
    finally:
        os.close(told)


def take(ranges: bytes) -> bool:
    """Have copies of these for ourselves, as if each page were written to.

    What is not mapped, or not writable, stays as it is.  False where nothing could be done: for want of
    ranges, or by a kernel before Linux 5.14 (madvise(2), MADV_POPULATE_WRITE).
    """
    refused = [
        _libc.madvise(first, length, _MADV_POPULATE_WRITE) for first, length in _RANGE.iter_unpack(ranges)
    ]
    return not all(refused)


def _held_alone() -> list[Range]:
    """Of our private memory, what no other process has.

    All entries are read before any is looked at, for that takes memory, too.
    """
    with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
        read = []
        for first, end in _writable(own.read("self/maps")):
            pagemap.seek(first // PAGE_BYTES * _ENTRY.size)
            read.append((first, pagemap.read((end - first) // PAGE_BYTES * _ENTRY.size)))
    found: list[Range] = []
    for first, entries in read:
        _add(found, first, entries)
    return found


def _writable(maps: bytes) -> list[tuple[int, int]]:
    lines = [line.partition(_WRITABLE)[0] for line in maps.splitlines() if _WRITABLE in line]
    bounds = [line.partition(b"-") for line in lines if b" " not in line]
    return [(int(first, 16), int(end, 16)) for first, _, end in bounds]


def _add(found: list[Range], address: int, entries: bytes) -> None:
    """The pages from ``address`` on, of which these are the entries; neighbours become one range."""
    for (entry,) in _ENTRY.iter_unpack(entries):
        if entry & _PRESENT and entry & _EXCLUSIVE:
            first, length = found[-1] if found else (0, 0)
            if first + length == address:
                found[-1] = (first, length + PAGE_BYTES)
            else:
                found.append((address, PAGE_BYTES))
        address += PAGE_BYTES
