"""A run that is to end with its host: the process that asked for it, watched through a pidfd."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable

from ..model.identity import ProcessIdentity
from ..process.pidfd import has_ended, open_proven
from ..process.program import StartFailure
from .poller import READ, Poller

HOST_GONE = "host_gone"  # as a reason: of a stop, or of a run that never began
_AGAIN = 0.1


class HostGone(StartFailure):
    """The host had ended before its program was released."""

    def __init__(self) -> None:
        super().__init__(errno.ESRCH, "host", "")


class HostWatch:
    """Waits for the host's end in the worker's poller: nothing is asked again and again.

    From its making on the pidfd holds the host, so that its end can neither be missed nor be
    taken from another process that got its pid.
    """

    def __init__(self, host: ProcessIdentity, poller: Poller) -> None:
        self._poller = poller
        self._pidfd = -1
        self._failure: StartFailure | None = None
        try:
            self._pidfd = open_proven(host)
        except ProcessLookupError:
            self._failure = HostGone()
        except OSError as error:
            self._failure = StartFailure(error.errno or errno.EIO, "host", f"/proc/{host.pid}")

    @classmethod
    def of(cls, host: dict[str, object] | None, poller: Poller) -> HostWatch | None:
        """None for a run that does not end with anybody."""
        return None if host is None else cls(ProcessIdentity.from_dict(host), poller)

    def check(self) -> None:
        """May the program be released?  Raises HostGone; StartFailure for a host that cannot be watched."""
        if self._failure is None and has_ended(self._pidfd):
            self._let_go()
        if self._failure is not None:
            raise self._failure

    def watch(self, on_gone: Callable[[], object]) -> None:
        """Call back when the host ends, or has ended; in the place of an earlier callback."""
        if self._failure is None:
            self._poller.watch(self._pidfd, READ, lambda _: self._ended(on_gone))
        elif isinstance(self._failure, HostGone):
            self._tell(on_gone)

    def close(self) -> None:
        """The run is over: its host may go."""
        if self._failure is None:
            self._let_go()

    def _ended(self, on_gone: Callable[[], object]) -> None:
        self._let_go()
        self._tell(on_gone)

    def _let_go(self) -> None:
        self._failure = HostGone()
        self._poller.forget(self._pidfd)
        os.close(self._pidfd)

    def _tell(self, on_gone: Callable[[], object]) -> None:
        """Until it is heard: for want of a descriptor, say, a first try may fail."""
        self._poller.at("host", time.monotonic() + _AGAIN, lambda: self._tell(on_gone))
        on_gone()
        self._poller.cancel("host")
