"""Files of ``/proc`` about ourselves, which who asks again and again keeps open.

To open one and close it takes several times as long as to read it.  What is forked from a process
that keeps some must not read them: they go on telling of that process.
"""

from __future__ import annotations

import os

_PIECE = 8192
_SURELY_WHOLE = 2048  # the kernel fills at least a page before it cuts such a file short (seq_file)
_kept: dict[str, int] = {}


def read(name: str) -> bytes:
    """All of ``/proc/<name>`` as it is now.  Raises OSError."""
    fd = _kept.get(name)
    if fd is not None:
        return _all_of(fd)
    fd = _open(name)
    try:
        return _all_of(fd)
    finally:
        os.close(fd)


def read_into(name: str, room: bytearray) -> None:
    """As much of ``/proc/<name>`` as there is room for.  Raises OSError."""
    fd = _open(name)
    try:
        left = memoryview(room)
        while count := os.readv(fd, [left]):
            left = left[count:]
    finally:
        os.close(fd)


def keep_open(names: tuple[str, ...]) -> None:
    """Those that can be had; they stay open for as long as we live."""
    for name in names:
        if name not in _kept:
            try:
                _kept[name] = _open(name)
            except OSError:
                continue


def kept() -> set[int]:
    """Their descriptors."""
    return set(_kept.values())


def open_descriptors() -> int:
    """How many we have; 0 where the kernel does not count them (before Linux 6.2).  Raises OSError."""
    return os.stat("/proc/self/fd").st_size


def _open(name: str) -> int:
    return os.open(f"/proc/{name}", os.O_RDONLY | os.O_CLOEXEC)


def _all_of(fd: int) -> bytes:
    """By plain calls: those of a file object cost more than what the kernel does."""
    text = piece = os.pread(fd, _PIECE, 0)
    while len(text) >= _SURELY_WHOLE and piece:  # to find its end costs as much as all of it
        piece = os.pread(fd, _PIECE, len(text))
        text += piece
    return text
