"""All files of a folder at once."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ..process import libc
from .files import fsync_dir, open_regular


def files_below(path: str) -> Iterator[str]:
    """The names of all files in a directory, relative to it, in order."""
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            yield os.path.relpath(os.path.join(folder, name), path)


def sync_all(path: str) -> None:
    """Everything in a directory is on the disk then.  Raises OSError.

    One call for thousands of files, where there is such a call; a sync of each takes minutes.
    """
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if libc.sync_file_system(fd):
            return
    finally:
        os.close(fd)
    for name in files_below(path):
        fd, _ = open_regular(os.path.join(path, name))
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    for folder, _, _ in os.walk(path):
        fsync_dir(folder)
