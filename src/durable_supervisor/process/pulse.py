"""Whether a process stands still, for who asks it of the same one again and again."""

from __future__ import annotations

import os

from . import forks

_STILL = b"TtZX"  # stopped, stopped by who traces it, dead: proc(5)


class Pulse:
    """``/proc/<pid>/stat`` of one process, held open: it tells nothing of whoever has its pid later."""

    def __init__(self, pid: int) -> None:
        """Raises OSError, also where there is no such process."""
        self.pid = pid
        self._fd = forks.opened(lambda: os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC))

    def stands_still(self) -> bool:
        """Is it stopped, dead or gone, so that it would take nothing that is given to it?  Raises OSError."""
        try:
            line = os.pread(self._fd, 512, 0)
        except ProcessLookupError:
            return True
        return line[line.rindex(b")") + 2 :][:1] in _STILL  # a name can have parentheses in it

    def close(self) -> None:
        """Idempotent."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            forks.close(fd)
