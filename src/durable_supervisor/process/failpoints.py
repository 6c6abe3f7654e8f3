"""Named places where a test can make this process die or stand still.

``DURABLE_SUPERVISOR_FAILPOINTS="worker.released=kill,fold.before_commit=pause@3"``:
at the named point (at its third pass, with ``@3``) the process sends itself
SIGKILL, or SIGSTOP for ``pause``.  With ``>/path`` at the end it first appends the point's
name to that file, so that a test can tell a point that was never reached.  Unset, a point costs
one truth test.  The worker gets the variable from its supervisor; programs never see it.
"""

from __future__ import annotations

import os
import signal

VARIABLE = "DURABLE_SUPERVISOR_FAILPOINTS"
_ACTIONS = {"kill": signal.SIGKILL, "pause": signal.SIGSTOP}


def _parse(text: str) -> dict[str, tuple[int, int]]:
    armed: dict[str, tuple[int, int]] = {}
    for entry in filter(None, text.split(",")):
        name, _, action = entry.partition("=")
        action, _, count = action.partition("@")
        if action in _ACTIONS:
            armed[name] = (_ACTIONS[action], int(count or 1))
    return armed


_points, _, _witness = os.environ.get(VARIABLE, "").partition(">")
_armed = _parse(_points)


def failpoint(name: str) -> None:
    """Die or stop here, if a test armed this point."""
    if _armed and name in _armed:
        signo, passes = _armed[name]
        if passes > 1:
            _armed[name] = (signo, passes - 1)
            return
        del _armed[name]
        if _witness:
            _tell(name)
        os.kill(os.getpid(), signo)


def _tell(name: str) -> None:
    try:
        fd = os.open(_witness, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.write(fd, name.encode() + b"\n")
        os.close(fd)
    except OSError:  # a confined child, say: it dies all the same
        pass


def is_armed(name: str) -> bool:
    """Has a test armed this point in this process, and is it still ahead?"""
    return name in _armed


def any_armed() -> bool:
    """Has a test armed any point in this process?"""
    return bool(_armed)
