"""A worker that loads while its supervisor does.

For an owner that starts one run and is gone, such as a command line: an interpreter of its own
takes as long to load as the supervisor's modules do, and on two processors both load at once.
It is given nothing before the run's intent is committed, and leaves when none can come
any more: when our end of the socket closes, whoever closes it.

Nothing here loads asyncio, so that it can be made before that is.
"""

from __future__ import annotations

import socket

from ...process import forks
from ...process.failpoints import any_armed
from ...process.rights import send_fds
from .spawn import spawn_prestarted

TYPE_CHECKING = False  # not from typing, which takes longer to load than this
if TYPE_CHECKING:
    from .links import ExitWatch


class PrestartedWorker:
    """One that waits for the descriptors of its run."""

    def __init__(self, pid: int, handover: socket.socket) -> None:
        self.pid = pid
        self._handover = handover
        self._watch: ExitWatch | None = None

    @classmethod
    def spawn(cls) -> PrestartedWorker | None:
        """None where a process cannot be had: whoever needs one later is told why.

        Nor where a failpoint is armed, which the rehearsal of a worker that waits would meet.
        """
        if any_armed():
            return None
        try:
            ours, theirs = forks.socketpair(socket.SOCK_SEQPACKET)
        except OSError:
            return None
        try:
            return cls(spawn_prestarted(theirs.fileno()), ours)
        except OSError:
            forks.close_socket(ours)
            return None
        finally:
            forks.close_socket(theirs)

    def reap(self) -> None:
        """In the loop of an owner, which may outlive it: have it reaped when it ends."""
        from .links import ExitWatch

        self._watch = ExitWatch.of_child(self.pid, lambda: None)

    def give(self, channel: int, log: int) -> bool:
        """Hand it its run.  False: it is gone, or has one already, and has got nothing."""
        try:
            send_fds(self._handover, b"\1", [log, channel])
        except OSError:
            return False
        finally:
            forks.close_socket(self._handover)
        return True

    def close(self) -> None:
        """It leaves, unless it has its run.  Idempotent."""
        forks.close_socket(self._handover)
        if self._watch is not None:
            self._watch.close()
