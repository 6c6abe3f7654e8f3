"""Whatever a measured program leaves behind becomes our child, and is ended by its pid."""

from __future__ import annotations

import os
import signal
import time

from durable_supervisor.process import libc

from .procfs import command_line, descendants

_ROUNDS = 100


def adopt() -> None:
    """From now on orphans below this process come to it instead of to init (prctl(2), subreaper)."""
    libc.set_child_subreaper()


def end_all() -> list[str]:
    """Kill and reap all below this process; the command lines of those that were still running."""
    left: dict[int, str] = {}
    for _ in range(_ROUNDS):  # what forks meanwhile is found in the next round
        _reap()
        alive = descendants(os.getpid())
        if not alive:
            break
        for pid in alive:
            words = command_line(pid)  # empty for a zombie, which is its parent's to reap
            if words:
                left[pid] = words
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.01)
    return list(left.values())


def _reap() -> None:
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return
        except ChildProcessError:
            return
