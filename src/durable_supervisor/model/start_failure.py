"""Why a program was never started, in words."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import Final

# Where the kernel's own words mislead: the error and the step that met it.
_REFUSALS: Final = {
    ("ENOENT", "exec"): "the interpreter that it names is missing",
    ("ENOEXEC", "exec"): "not a program; a script begins with #!",
    ("EACCES", "exec"): "it, or the interpreter that it names, may not be executed",
}


def start_failure_words(reason: str | None, detail: Mapping[str, object]) -> str:
    """``ENOENT (No such file or directory): directory /srv/project``.

    ``reason``: the run's.  ``detail``: of its event or its evidence; with ``error``, ``step`` and ``path``
    where the kernel has refused it.
    """
    reason = reason or "no reason recorded"
    error, step = str(detail.get("error") or reason), str(detail.get("step"))
    words = reason if error in reason else f"{reason}: {error}"
    if said := _REFUSALS.get((error, step)) or _said_by_the_system(error):
        words += f" ({said})"
    if path := detail.get("path"):
        words += f": {'directory ' if step == 'cwd' else ''}{path}"
    return words


def _said_by_the_system(error: str) -> str:
    number = getattr(errno, error, None) if error.isupper() else None
    return os.strerror(number) if isinstance(number, int) else ""
