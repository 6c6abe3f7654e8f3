"""Children whose end may come when nobody watches for it any more: a supervisor closes, its workers go on.

Each is reaped by its exact pid, at the latest when the next one is made, so that an application which opens
supervisors again and again does not gather zombies.  Its other children are left alone.
"""

from __future__ import annotations

import os

from .identity import read_stat

# Pid: start ticks, since somebody else may have reaped it, and its pid be another's by now.
_made: dict[int, int] = {}


def made(pid: int) -> None:
    """A new child.  Those of before that have ended are reaped."""
    _reap()
    stat = read_stat(pid)
    if stat is not None:
        _made[pid] = stat.start_ticks


def _reap() -> None:
    for pid, ticks in list(_made.items()):
        try:
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                continue  # it lives
            stat = read_stat(pid)
            if stat is not None and stat.start_ticks == ticks:
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)
        except ChildProcessError:
            pass  # whoever watched it, or the application, was first
        _made.pop(pid, None)
