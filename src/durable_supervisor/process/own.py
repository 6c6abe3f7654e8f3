"""Files of ``/proc`` about ourselves, which who asks again and again keeps open.

To open one and close it takes several times as long as to read it.  What is forked from a process
that keeps some must not read them: they go on telling of that process.
"""

from __future__ import annotations

import os

_PIECE = 8192
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


def _open(name: str) -> int:
    return os.open(f"/proc/{name}", os.O_RDONLY | os.O_CLOEXEC)


def _all_of(fd: int) -> bytes:
    """By plain calls: those of a file object cost more than what the kernel does."""
    text = piece = os.pread(fd, _PIECE, 0)
    while piece:
        piece = os.pread(fd, _PIECE, len(text))
        text += piece
    return text
