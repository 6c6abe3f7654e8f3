"""Be told of changes in a directory, or when a file is let go of, without looking again (inotify(7))."""

from __future__ import annotations

import _thread
import ctypes
import os
import struct

_libc = ctypes.CDLL(None, use_errno=True)

_HEAD = struct.Struct("@iIII")  # watch, mask, cookie, length of the name
_MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x40, 0x80, 0x100, 0x200
_DELETE_SELF, _MOVE_SELF = 0x400, 0x800
_CLOSE_WRITE = 0x8
_ONLY_DIRECTORY = 0x01000000
_CHANGES = _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF | _ONLY_DIRECTORY
_BUFFER = 64 * 1024


def watch_directory(path: str) -> int:
    """A descriptor that turns readable when a name in ``path`` comes, goes or is exchanged.

    Raises OSError: no such directory, no watch left, or no inotify on this system.
    """
    return _watch(path, _CHANGES)


def watch_release(path: str) -> int:
    """A descriptor that turns readable when the last copy of one that could write to ``path`` is closed.

    Also by the end of its process, and a moment before its locks are free.  Raises OSError.
    """
    return _watch(path, _CLOSE_WRITE)


def close(fd: int) -> None:
    """Close it without waiting: the kernel first waits until nobody uses its watches, some 10 ms."""
    try:
        _thread.start_new_thread(os.close, (fd,))
    except RuntimeError:  # no thread to be had
        os.close(fd)


def _watch(path: str, mask: int) -> int:
    if not hasattr(_libc, "inotify_init1"):
        raise OSError("this system has no inotify")
    fd = int(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
    if fd < 0:
        raise OSError(ctypes.get_errno(), "inotify_init1")
    if _libc.inotify_add_watch(fd, os.fsencode(path), mask) < 0:
        error = ctypes.get_errno()
        os.close(fd)
        raise OSError(error, "inotify_add_watch")
    return fd


def changed_names(fd: int) -> set[bytes]:
    """Names that have changed since the last call; the empty one stands for the directory itself.

    Events that the kernel had to drop count as a change of the directory.
    """
    names: set[bytes] = set()
    while True:
        try:
            data = os.read(fd, _BUFFER)
        except BlockingIOError:
            return names
        offset = 0
        while offset < len(data):
            *_, length = _HEAD.unpack_from(data, offset)
            offset += _HEAD.size
            names.add(data[offset : offset + length].rstrip(b"\0"))
            offset += length
