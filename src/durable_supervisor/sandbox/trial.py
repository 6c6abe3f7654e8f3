"""Try something that cannot be undone, in a process that is gone afterwards."""

from __future__ import annotations

import os
from collections.abc import Callable


def succeeds(attempt: Callable[[], bool]) -> bool:
    """Was ``attempt`` true in a forked child?  False also when it raised or was killed.

    The caller must be single-threaded.  Raises OSError where there can be no child.
    """
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if attempt() else 1)
        except BaseException:  # noqa: BLE001  nothing may escape into a second copy of the caller
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
