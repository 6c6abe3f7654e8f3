"""Facts about the calling process that a run inherits or depends on.

A supervisor embedded in it reads them in place; a client sends them along.
"""

from __future__ import annotations

import os

from ..model.ids import RUN_ID_LENGTH

RUN_ID_VARIABLE = "DURABLE_SUPERVISOR_RUN_ID"


def own_directory() -> str:
    """Its working directory; '' where that was deleted under it: a start that says where needs none."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


def outer_run() -> str | None:
    """The run that this process is a program of, if any."""
    outer = os.environ.get(RUN_ID_VARIABLE, "")
    return outer if len(outer) == RUN_ID_LENGTH and outer.isalnum() else None


def read_umask() -> int:
    """Without changing it, which would race with other threads (proc(5), ``Umask``).  Raises OSError."""
    # By plain calls: every start asks for it, and a text file costs more than what the kernel does.
    fd = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)
    try:
        status = os.read(fd, 4096)
    finally:
        os.close(fd)
    at = status.find(b"\nUmask:")
    return 0o022 if at < 0 else int(status[at + len(b"\nUmask:") :].split(maxsplit=1)[0], 8)
