"""Descriptors that a forked copy of the host must not keep.

A lock lives as long as any copy of its description does.  A host that forks a
helper would hand it a copy of the directory's lock, or of a run log on its way
to a worker, and the lock would outlive the host.  So the copy closes them at once.
"""

from __future__ import annotations

import os

_guarded: set[int] = set()
_registered = False


def guard(fd: int) -> int:
    """Close ``fd`` in every copy that this process forks from now on.  Returns it."""
    global _registered
    if not _registered:
        os.register_at_fork(after_in_child=_close_guarded)
        _registered = True
    _guarded.add(fd)
    return fd


def close(fd: int) -> None:
    """Close a guarded descriptor here; its number is free for others afterwards."""
    _guarded.discard(fd)
    os.close(fd)


def release(fd: int) -> None:
    """Somebody else closes it from now on."""
    _guarded.discard(fd)


def _close_guarded() -> None:
    for fd in list(_guarded):
        try:
            os.close(fd)
        except OSError:
            pass
    _guarded.clear()
