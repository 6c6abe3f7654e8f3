"""The file of a run log made ahead of its run: to give it a name is all that its start waits for.

A start that comes alone finds the kernel's memory of the file system cold.  On ext4 a new file then takes
some 0.15 ms, as long as half the commit does, and longer where others were removed; a name takes 0.03.

Until then it has none.  So nobody can find it, put another in its place or write to it, and nothing of it
outlives its owner.
"""

from __future__ import annotations

import os

from .files import FILE_MODE, write_all
from .format import SEGMENT_MAGIC, SegmentHeader
from .paths import RunPaths

# Where there is no such flag, this opens a directory to write, which is refused: as on a file system that
# knows no files without a name.
_NAMELESS = os.O_RDWR | os.O_CLOEXEC | getattr(os, "O_TMPFILE", 0)


def make_ready(runs_dir: str) -> int:
    """A file, 0600 whatever the umask, on the file system of the logs.  Raises OSError."""
    fd = os.open(runs_dir, _NAMELESS, FILE_MODE)
    try:
        os.fchmod(fd, FILE_MODE)
        os.pwrite(fd, SEGMENT_MAGIC, 0)  # its first block: half of what the header's write takes
    except OSError:
        os.close(fd)
        raise
    return fd


def use_ready(fd: int, paths: RunPaths, header: SegmentHeader) -> bool:
    """Make it the log of a new run, as `create.create_log` does; under its name it is whole at once.

    False where that cannot be, as where there is such a log already: it is nobody's then, and to be closed.
    """
    text = header.encode()
    if write_all(fd, [text], 0, len(text))[1]:
        return False
    try:
        # By the descriptor itself: see O_TMPFILE in open(2).  An absolute path needs no directory, but
        # without one `os.link` calls link(2), which would link this symbolic link and not what it names.
        os.link(f"/proc/self/fd/{fd}", paths.log(header.attempt), src_dir_fd=fd, follow_symlinks=True)
    except OSError:  # the first of a shard, say
        return False
    return True
