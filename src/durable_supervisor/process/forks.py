"""Descriptors that a forked copy of the host must not keep.

A lock lives as long as any copy of its description does.  A host that forks a
helper would hand it a copy of the directory's lock, or of a run log on its way
to a worker, and the lock would outlive the host.  So the copy closes them at once.

A thread may fork between a descriptor's opening and its being noted here (and
between its being forgotten and closed).  `no_fork` is held over both: a fork of this
process waits for it, some microseconds.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

no_fork = threading.RLock()
_guarded: dict[int, tuple[int, int]] = {}  # device and inode: a number may be another's by the time of a fork


def opened(opener: Callable[[], int]) -> int:
    """Open a descriptor and guard it, with no fork in between.  Raises what ``opener`` raises."""
    with no_fork:
        return guard(opener())


def socketpair(kind: int) -> tuple[socket.socket, socket.socket]:
    """Two connected Unix sockets, both guarded; to be closed by `close_socket`.  Raises OSError."""
    with no_fork:
        pair = socket.socketpair(socket.AF_UNIX, kind)
        for end in pair:
            guard(end.fileno())
        return pair


def guard(fd: int) -> int:
    """Close ``fd`` in every copy that this process forks from now on.  Returns it.

    Should it be closed unknown to this module (by a library, or a collected object), its
    number is no longer taken for it.
    """
    _guarded[fd] = _what(fd)
    return fd


def close(fd: int) -> None:
    """Close a guarded descriptor here; its number is free for others afterwards."""
    with no_fork:
        _guarded.pop(fd, None)
        os.close(fd)


def close_socket(end: socket.socket) -> None:
    """The same for a socket; idempotent."""
    with no_fork:
        _guarded.pop(end.fileno(), None)
        end.close()


def release(fd: int) -> None:
    """Somebody else closes it from now on; hold `no_fork` until that is done."""
    _guarded.pop(fd, None)


def _what(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def _in_child() -> None:
    """Put nothing in the place of each guarded descriptor, so that its number stays taken.

    The copy has our objects too: one that is collected closes the number that it knows, which would else be a
    file that the copy has opened since.
    """
    nothing = _nothing() if _guarded else -1
    for fd, what in _guarded.items():
        with suppress(OSError):
            if _what(fd) != what:
                continue
            if nothing >= 0:
                os.dup2(nothing, fd, inheritable=False)
            else:
                os.close(fd)
    if nothing >= 0:
        os.close(nothing)
    _guarded.clear()
    no_fork.release()


def _nothing() -> int:
    """-1 where no descriptor is left for it."""
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


os.register_at_fork(before=no_fork.acquire, after_in_parent=no_fork.release, after_in_child=_in_child)
