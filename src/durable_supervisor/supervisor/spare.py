"""Workers that may have another run after the one they were forked for; see `worker.reuse`.

The descriptors of a run go straight to a worker that waits for them.  A message is taken by one
process or by none: a worker that dies with it takes the last copy of the lock along.
"""

from __future__ import annotations

import asyncio
import socket

from ..process import forks
from ..process.channel import send_fds
from ..process.pulse import Pulse
from ..worker.spec import SHORT_RUN_SECONDS

_MOST = 32  # at work or not; each costs us two descriptors
_IDLE_SECONDS = 3.0  # then a quiet supervisor has no more processes than before


class KeptWorker:
    """Our end of the socket on which a worker is given its next run.  Closed, it has none any more."""

    def __init__(self, end: socket.socket, now: float) -> None:
        self._end = end
        self._pulse: Pulse | None = None
        self.since = now  # it has its run, or waits for one
        self.free = False
        end.setblocking(False)

    def freed(self, pid: int) -> None:
        """It says itself that it has no run now."""
        if self._pulse is None:
            try:
                self._pulse = Pulse(pid)
            except OSError:  # short of descriptors, or it is gone: it is not used again
                return
        self.free = True

    def give(self, log: int, channel: int) -> bool:
        """Hand it a run.  False: it has not got it, and never will have one."""
        try:
            if self._pulse is None or self._pulse.stands_still():  # and so would the run
                return False
            send_fds(self._end, b"\1", [log, channel])
        except OSError:  # it was killed meanwhile
            return False
        self.free = False
        return True

    def close(self) -> None:
        """It ends with the run that it has.  Idempotent."""
        forks.close_socket(self._end)
        if self._pulse is not None:
            self._pulse.close()


class SpareWorkers:
    """Those of one supervisor.  The last one that became free is the next to be used: its memory is warm."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._kept: list[KeptWorker] = []  # in the order of ``since``
        self._tidying: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """Those without a run end now, the others with theirs."""
        if self._tidying is not None:
            self._tidying.cancel()
        for one in self._kept:
            one.close()
        self._kept.clear()

    def give(self, log: int, channel: int) -> KeptWorker | None:
        """The worker that has got this run; None where there is none to be had."""
        for one in reversed([one for one in self._kept if one.free]):
            if one.give(log, channel):
                self._note(one)
                return one
            self.drop(one)
        return None

    def keep(self) -> tuple[KeptWorker, socket.socket] | None:
        """For a worker about to be forked: it, and the end of the socket that it is to have."""
        if len(self._kept) >= _MOST:
            self._let_go_of_long_runs()
        if len(self._kept) >= _MOST:
            return None
        try:
            ours, theirs = forks.socketpair(socket.SOCK_SEQPACKET)
        except OSError:  # short of descriptors: it does without
            return None
        worker = KeptWorker(ours, self._loop.time())
        self._kept.append(worker)
        return worker, theirs

    def back(self, worker: KeptWorker) -> None:
        """The channel of its run has ended."""
        if not worker.free or worker not in self._kept:
            self.drop(worker)
            return
        self._note(worker)
        if self._tidying is None:
            self._tidying = self._loop.call_later(_IDLE_SECONDS, self._tidy)

    def drop(self, worker: KeptWorker) -> None:
        """It shall have no further run.  Idempotent."""
        worker.close()
        if worker in self._kept:
            self._kept.remove(worker)

    def _note(self, worker: KeptWorker) -> None:
        worker.since = self._loop.time()
        self._kept.remove(worker)
        self._kept.append(worker)

    def _let_go_of_long_runs(self) -> None:
        """Workers that will not be free for another run hold a place, and a descriptor, for nothing."""
        long_ago = self._loop.time() - SHORT_RUN_SECONDS
        for one in [one for one in self._kept if not one.free and one.since < long_ago]:
            self.drop(one)

    def _tidy(self) -> None:
        """Let go of who has waited for long.  No timer is left where nobody waits."""
        self._tidying = None
        long_ago = self._loop.time() - _IDLE_SECONDS
        for one in [one for one in self._kept if one.free and one.since <= long_ago]:
            self.drop(one)
        waiting = [one.since for one in self._kept if one.free]
        if waiting:
            self._tidying = self._loop.call_at(min(waiting) + _IDLE_SECONDS, self._tidy)
