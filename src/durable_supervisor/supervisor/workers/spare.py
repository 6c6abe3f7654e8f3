"""Workers that may have another run after the one they were forked for; see `worker.reuse`.

A run goes straight to a worker that waits for it, over the channel of the last one: its spec, with the
log's descriptor.  That is taken by this one process or by none: a worker that dies with it takes the last
copy of the lock along.

No message is taken for another run's, since all keep their order: `FREE` is the last that a worker says of a
run, and what is said to it stands before or behind the next one's spec.  Where a frame may have been sent in
part, the worker is let go (`links`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...process.pulse import Pulse
from ...process.rights import send_fds
from ...worker.spec import SHORT_RUN_SECONDS
from .channel import Assignment, Channel

_MOST = 32  # at work or not; each costs us two descriptors
_IDLE_SECONDS = 3.0  # then a quiet supervisor has no more processes than before


class KeptWorker:
    """Holds its channel while it is free; while it has a run, that run's `WorkerLink` does.

    ``on_end`` is called when it ends while it is free.
    """

    def __init__(self, now: float, on_end: Callable[[KeptWorker], None]) -> None:
        self._on_end = on_end
        self._channel: Channel | None = None
        self._pulse: Pulse | None = None
        self.since = now  # it has its run, or waits for one

    @property
    def free(self) -> bool:
        return self._channel is not None

    def taken_back(self, pid: int, channel: Channel) -> Channel | None:
        """It is ``pid``, and says that it has no run now.  Its channel again where it is to have no other."""
        try:
            self._pulse = self._pulse or Pulse(pid)
        except OSError:  # short of descriptors, or it is gone
            return channel
        self._channel = channel
        channel.listen(lambda: self._on_end(self))  # it has nothing else to say
        return None

    def give(self, frame: bytes, log: int) -> Assignment | None:
        """Hand it a run.  None: it has not got it, and never will have one."""
        channel = self._channel
        try:
            if channel is None or self._pulse is None or self._pulse.stands_still():  # and so would the run
                return None
            unsent = memoryview(frame)[send_fds(channel.end, frame, [log]) :]
        except OSError:  # it was killed meanwhile
            return None
        if unsent:
            channel.ignore()  # until it is sent
        self._channel = None
        return Assignment(channel, unsent, self)

    def close(self) -> None:
        """It ends, or does so with the run that it has.  Idempotent."""
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()
        if self._pulse is not None:
            self._pulse.close()


class SpareWorkers:
    """Those of one supervisor.  The last one that became free is the next to be used: its memory is warm."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._busy: set[KeptWorker] = set()  # at work, or about to be forked
        self._free: list[KeptWorker] = []  # in the order of ``since``
        self._tidying: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """Those without a run end now, the others with theirs."""
        if self._tidying is not None:
            self._tidying.cancel()
        for one in (*self._free, *self._busy):
            self.drop(one)

    def give(self, frame: bytes, log: int) -> Assignment | None:
        """To the worker that has got this run now; None where there is none to be had."""
        while self._free:
            one = self._free[-1]
            assignment = one.give(frame, log)
            if assignment is not None:
                self._busy.add(self._free.pop())
                one.since = self._loop.time()
                return assignment
            self.drop(one)
        return None

    def keep(self) -> KeptWorker | None:
        """For a worker about to be forked."""
        if self._full:
            self._let_go_of_long_runs()
        if self._full:
            return None
        worker = KeptWorker(self._loop.time(), self.drop)
        self._busy.add(worker)
        return worker

    def back(self, worker: KeptWorker) -> None:
        """Its run has ended."""
        if not worker.free or worker not in self._busy:
            self.drop(worker)
            return
        self._busy.remove(worker)
        worker.since = self._loop.time()
        self._free.append(worker)
        if self._tidying is None:
            self._tidying = self._loop.call_later(_IDLE_SECONDS, self._tidy)

    def drop(self, worker: KeptWorker) -> None:
        """It shall have no further run.  Idempotent."""
        worker.close()
        self._busy.discard(worker)
        if worker in self._free:
            self._free.remove(worker)

    @property
    def _full(self) -> bool:
        return len(self._busy) + len(self._free) >= _MOST

    def _let_go_of_long_runs(self) -> None:
        """Workers that will not be free for another run hold a place, and a descriptor, for nothing."""
        long_ago = self._loop.time() - SHORT_RUN_SECONDS
        for one in [one for one in self._busy if one.since < long_ago]:
            self.drop(one)

    def _tidy(self) -> None:
        """Let go of who has waited for long.  No timer is left where nobody waits."""
        self._tidying = None
        long_ago = self._loop.time() - _IDLE_SECONDS
        while self._free and self._free[0].since <= long_ago:
            self.drop(self._free[0])
        if self._free:
            self._tidying = self._loop.call_at(self._free[0].since + _IDLE_SECONDS, self._tidy)
