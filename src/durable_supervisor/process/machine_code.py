"""Machine code in a process of Python: where it lies, and how to keep signals out of it."""

from __future__ import annotations

import ctypes
import os

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_PROT_READ, _PROT_EXEC, _MAP_PRIVATE = 1, 4, 2  # to load `mmap` for these would cost every worker
_SIG_SETMASK = 2
_Mask = ctypes.c_uint64
# By the system call, since the C library's function leaves out two signals that it has handlers for itself.
_ALL_SIGNALS = _Mask(2**64 - 1)
_MASK_BYTES = ctypes.sizeof(_Mask)
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.mmap.restype = ctypes.c_void_p
_NOT_MAPPED = ctypes.c_void_p(-1).value
_SIGPROCMASK = {"x86_64": 14, "aarch64": 135}.get(os.uname().machine)


def assembled(listing: str) -> bytes:
    """What an assembler makes of it: each line begins with its code in hexadecimal, up to a bar."""
    return b"".join(bytes.fromhex(line.partition("|")[0]) for line in listing.splitlines())


def load(code: bytes) -> int:
    """The address of a page that begins with it, and has zeros behind it.  It stays for good.

    It is written as a file, so that no memory is ever both writable and executable.  Raises OSError where
    that is refused.
    """
    fd = os.memfd_create("code", os.MFD_CLOEXEC)
    try:
        os.write(fd, code)
        page = _libc.mmap(None, PAGE_BYTES, _PROT_READ | _PROT_EXEC, _MAP_PRIVATE, fd, 0)
    finally:
        os.close(fd)
    if page is None or page == _NOT_MAPPED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(page)


class no_signals:  # noqa: N801  (it reads as what it does)
    """``with no_signals():`` no handler, the C part of Python's included, runs in this thread meanwhile."""

    __slots__ = ("_before",)

    def __enter__(self) -> ctypes.c_uint64:
        """The mask that was, and will be."""
        self._before = _Mask()
        _set_mask(_ALL_SIGNALS, self._before)
        return self._before

    def __exit__(self, *raised: object) -> None:
        _set_mask(self._before, None)


def _set_mask(mask: ctypes.c_uint64, before: ctypes.c_uint64 | None) -> None:
    old = None if before is None else ctypes.byref(before)
    _libc.syscall(_SIGPROCMASK, _SIG_SETMASK, ctypes.byref(mask), old, _MASK_BYTES)
