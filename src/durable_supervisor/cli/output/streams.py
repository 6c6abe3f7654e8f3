"""The standard streams, made fit before anything else is done."""

from __future__ import annotations

import os
import sys

STDOUT = 1
STDERR = 2


def prepare_streams() -> None:
    """Call first.  Fills closed descriptors, and makes names that cannot be encoded no reason to fail."""
    for descriptor, mode in ((0, os.O_WRONLY), (STDOUT, os.O_RDONLY), (STDERR, os.O_RDONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            # Or the next file opened (a run log!) would be "stdout" and take what we print.  The
            # wrong mode keeps it an error to use it.  The lowest free number is this one.
            os.open(os.devnull, mode)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def close_quietly() -> None:
    """After a broken pipe: the interpreter's own flush at exit must not complain again."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, STDOUT)
    os.close(null)
