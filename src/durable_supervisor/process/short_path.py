"""Paths that fit a socket's address: sun_path ends at 107 bytes (unix(7)), a directory's may be longer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def short_path(folder: str) -> Iterator[str]:
    """A short path to ``folder`` while the block lasts, by a descriptor.  Raises OSError."""
    directory = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}"
    finally:
        os.close(directory)
