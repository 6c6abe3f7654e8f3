"""Named places where a test can make this process die or stand still.

``DURABLE_SUPERVISOR_FAILPOINTS="worker.released=kill,fold.before_commit=pause@3"``:
at the named point (at its third pass, with ``@3``) the process sends itself
SIGKILL, or SIGSTOP for ``pause``.  Unset, a point costs one truth test.  The worker
gets the variable from its supervisor; programs never see it.
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


_armed = _parse(os.environ.get(VARIABLE, ""))


def failpoint(name: str) -> None:
    """Die or stop here, if a test armed this point."""
    if _armed and name in _armed:
        signo, passes = _armed[name]
        if passes > 1:
            _armed[name] = (signo, passes - 1)
            return
        del _armed[name]
        os.kill(os.getpid(), signo)


def any_armed() -> bool:
    """Has a test armed any point in this process?"""
    return bool(_armed)
