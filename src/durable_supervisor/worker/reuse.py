"""A worker whose run has left nothing behind takes the next one of its supervisor.

So a busy supervisor's runs cost no fork of a worker, and no memory that has to be copied
anew.  To everybody else it looks as if the worker had exited: the lock is free.  While it
has no run it ignores every signal that a worker may be sent, as one does that waits for
its first.

The channel is the same for all its runs, and its messages keep their order.  So their place
tells which run they belong to: whatever comes to us before the next one's spec belongs to the
last, and we say nothing between the last one's `FREE` and that spec.
"""

from __future__ import annotations

import gc
import os
import resource
import socket

from ..process import own, tree
from ..process.circumstances import FILES, circumstances
from ..process.failpoints import any_armed
from . import resting
from .numbers import CHANNEL_FD
from .spec import FREE, SHORT_RUN_SECONDS, STDIN_NULL, Spec, receive_next

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .tending import Tending

_MOST_RUNS = 1000  # what leaks a little is let go of in time; a fork of the next costs its start 2 ms
_MOST_GROWTH = 4 * 1024  # KiB of its peak, since its first run
_untouched: tuple[object, ...] | None = None


def note_circumstances() -> None:
    """Now, while there is nothing else to do: before a program could have changed them."""
    global _untouched
    _untouched = circumstances()


class Reuse:
    """May there be a further run?  Only of a worker that was ``forked`` by a zygote."""

    def __init__(self, *, forked: bool) -> None:
        self._forked = forked
        self._before = (_untouched or circumstances()) if forked else None
        self._left = _MOST_RUNS
        self._peak = 0

    def offered(self, ended: Tending) -> bool:
        """Is this process fit for another run, and has its supervisor been told?"""
        if not self._forked or any_armed() or not _left_nothing(ended):
            return False
        self._left -= 1
        worn = (
            self._left <= 0
            or self._has_grown()
            or _strangers(CHANNEL_FD, *own.kept(), *resting.descriptors())
        )
        # What this program has done to its parent (niceness, limits), the next one would inherit.
        worn = worn or circumstances() != self._before
        return not worn and ended.seconds < SHORT_RUN_SECONDS and ended.part(FREE)

    def take(self, channel: socket.socket) -> tuple[Spec, int] | None:
        """The next run's spec and log; None once the supervisor wants nothing more of us."""
        if not own.kept():  # they are read at each run's end
            own.keep_open((*FILES, tree.children_file(os.getpid(), os.getpid())))
        gc.collect()  # what was the last run's goes now, not in the middle of the next one
        gc.freeze()  # what stays is the worker's own: the next collection need not look at it
        channel.setblocking(True)  # while it has a run it never waits for its supervisor
        return receive_next(channel)

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
    """Is any descriptor open but stdio and these, which are?"""
    ours = {0, 1, 2, *known}
    count = own.open_descriptors()
    if count:
        return count != len(ours)
    listed = {int(name) for name in os.listdir("/proc/self/fd")}
    return len(listed - ours) > 1  # one was of the listing itself
