"""A worker whose run has left nothing behind takes the next one of its supervisor.

So a busy supervisor's runs cost no fork of a worker, and no memory that has to be copied
anew.  To everybody else it looks as if the worker had exited: the lock is free, then the
channel ends.  While it has no run it ignores every signal that a worker may be sent, as
one does that waits for its first.
"""

from __future__ import annotations

import gc
import os
import resource
import socket

from ..process import own, tree
from ..process.circumstances import FILES, circumstances
from ..process.failpoints import any_armed
from .spec import FREE, NEXT_FD, SHORT_RUN_SECONDS, STDIN_NULL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .tending import Tending

_MOST_RUNS = 1000  # what leaks a little is let go of in time; a fork of the next costs its start 2 ms
_MOST_GROWTH = 4 * 1024  # KiB of its peak, since its first run
_HANDED = 2  # descriptors: log and channel
_untouched: tuple[object, ...] | None = None


def note_circumstances() -> None:
    """Now, while there is nothing else to do: before a program could have changed them."""
    global _untouched
    _untouched = circumstances()


class Reuse:
    """Where the next run comes from, and whether there may be one.  ``kept``: the supervisor wants it."""

    def __init__(self, *, kept: bool) -> None:
        self._next = socket.socket(fileno=NEXT_FD) if kept else None
        self._before = (_untouched or circumstances()) if kept else None
        self._left = _MOST_RUNS
        self._peak = 0

    def offered(self, ended: Tending, channel_fd: int) -> bool:
        """Is this process fit for another run, and has its supervisor been told?"""
        if self._next is None or any_armed() or not _left_nothing(ended):
            return False
        self._left -= 1
        worn = self._left <= 0 or self._has_grown() or _strangers(NEXT_FD, channel_fd, *own.kept())
        # What this program has done to its parent (niceness, limits), the next one would inherit.
        worn = worn or circumstances() != self._before
        return not worn and ended.seconds < SHORT_RUN_SECONDS and ended.part(FREE)

    def take(self) -> tuple[int, int] | None:
        """The next run's log and channel; None once the supervisor wants nothing more of us."""
        assert self._next is not None
        if not own.kept():  # they are read at each run's end
            own.keep_open((*FILES, tree.children_file(os.getpid(), os.getpid())))
        gc.collect()  # what was the last run's goes now, not in the middle of the next one
        gc.freeze()  # what stays is the worker's own: the next collection need not look at it
        message, fds, _, _ = socket.recv_fds(self._next, 1, _HANDED, socket.MSG_CMSG_CLOEXEC)
        if not message or len(fds) != _HANDED:
            return None
        return fds[0], fds[1]

    def _has_grown(self) -> bool:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self._peak = self._peak or peak
        return peak > self._peak + _MOST_GROWTH


def _left_nothing(ended: Tending) -> bool:
    """Neither a process nor a thread, nor what nobody may find in a memory that lives on."""
    spec = ended.spec
    plain = spec.plan is None and spec.pty is None
    confided = bool(spec.secrets) or spec.stdin != STDIN_NULL
    return ended.confirmed and plain and not confided and not ended.recorder.had_thread


def _strangers(*known: int) -> bool:
    """Is any descriptor open but stdio and these?"""
    listed = {int(name) for name in os.listdir("/proc/self/fd")}
    return len(listed - {0, 1, 2, *known}) > 1  # one was of the listing itself
