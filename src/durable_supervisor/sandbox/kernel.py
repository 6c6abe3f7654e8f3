"""The kernel's calls that Python has no function for, and its files that take one write each."""

from __future__ import annotations

import ctypes
import os

_libc = ctypes.CDLL(None, use_errno=True)


def call(number: int, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    """syscall(2).  Integers are passed as the full register they fill.  Raises OSError."""
    given = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return _checked(_libc.syscall(ctypes.c_long(number), *given))


def prctl(option: int, *values: int) -> int:
    """prctl(2), the arguments that are not given as zero.  Raises OSError."""
    given = [ctypes.c_ulong(value) for value in (*values, 0, 0, 0, 0)[:4]]
    return _checked(_libc.prctl(ctypes.c_int(option), *given))


def unshare(namespaces: int) -> None:
    """unshare(2).  Raises OSError."""
    _checked(_libc.unshare(ctypes.c_int(namespaces)))


def mount(source: str | None, target: str, flags: int, kind: bytes | None = None) -> None:
    """mount(2) without data; without a type to bind, to remount, to change propagation.  Raises OSError."""
    origin = None if source is None else os.fsencode(source)
    _checked(_libc.mount(origin, os.fsencode(target), kind, ctypes.c_ulong(flags), None))


def write(path: str, text: str) -> None:
    """All of ``text`` in one write(2), as files in /proc and of groups want it.  Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(result)
