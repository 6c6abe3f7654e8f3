"""Facts about the calling process that a run inherits or depends on.

A supervisor embedded in it reads them in place; a client sends them along.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping

from ..model.ids import RUN_ID_LENGTH

RUN_ID_VARIABLE = "DURABLE_SUPERVISOR_RUN_ID"
_ENCODING = sys.getfilesystemencoding()
_ENVIRON = getattr(os, "_Environ", None)  # the type of `os.environ`, unless somebody has put another there


def own_variables(names: Iterable[str]) -> dict[str, str]:
    """Those of its environment that have these names, as they are now."""
    environ = os.environ
    # To ask `os.environ` takes five calls for each name, and two exceptions for each that it lacks; a start
    # asks for a dozen.  The dictionary of bytes behind it has no public name: so `os.environ` itself is asked
    # where that is not found, or where somebody has put another mapping in its place.
    kept = getattr(environ, "_data", None) if type(environ) is _ENVIRON else None
    if kept is None:
        return {name: value for name in names if (value := environ.get(name)) is not None}
    found = {}
    for name in names:
        value = kept.get(name.encode(_ENCODING, "surrogateescape"))
        if value is not None:
            found[name] = value.decode(_ENCODING, "surrogateescape")
    return found


def own_directory() -> str:
    """Its working directory; '' where that was deleted under it: a start that says where needs none."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


def outer_run(environ: Mapping[str, str]) -> str | None:
    """The run that a process with this environment is a program of, if any."""
    outer = environ.get(RUN_ID_VARIABLE, "")
    return outer if len(outer) == RUN_ID_LENGTH and outer.isalnum() else None


def read_umask() -> int:
    """Without changing it, which would race with other threads (proc(5), ``Umask``).  Raises OSError."""
    # By plain calls: every start asks for it, and a text file costs more than what the kernel does.
    fd = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return umask_in(os.read(fd, 4096))
    finally:
        os.close(fd)


def umask_in(status: bytes) -> int:
    """Of the process whose ``/proc/<pid>/status`` this is."""
    at = status.find(b"\nUmask:")
    if at < 0:
        return 0o022
    begin = at + len(b"\nUmask:")
    return int(status[begin : status.index(b"\n", begin)], 8)
