"""Wait for news of a run: an event beyond a cursor, or its end.  Woken by the worker, not polling."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from ..model.identity import ProcessIdentity, identity_of
from ..process import inotify
from ..process.signals import signal_process
from ..runlog.paths import RunPaths
from ..worker.spec import SHORT_RUN_SECONDS
from .dial import Dial
from .links import ExitWatch

if TYPE_CHECKING:
    from ..model.view import RunView

_FIRST_PAUSE = 0.005
_LONGEST_PAUSE = 0.25
_ASK_AFTER = 0.05
_UNOWNED_SECONDS = 1.0  # the next owner is there within a fraction of it, if there is one
_OWNED_SECONDS = 15.0  # many runs that were lost at once are judged in a few


class Watch:
    """Tells when the log's head has moved, over the worker's socket.

    While nobody listens there (not made yet, deleted, or gone), or who does takes no more connections, it
    falls back to looking again, ever more slowly, and asks a live worker once to make its socket anew.
    """

    def __init__(self, paths: RunPaths) -> None:
        self._paths = paths
        self._dial: Dial | None = None
        self._pause = _FIRST_PAUSE
        self._asked = False
        self._hung_up = False  # it was the last time

    async def news(self, after: int, worker: ProcessIdentity | None) -> bool:
        """Return when there may be an event beyond ``after``, or the worker has gone.

        True only where the worker itself says that there is one: so it lives.
        """
        if self._dial is None:
            self._dial = await Dial.connect(self._paths)
        if self._dial is None:
            await self._look_again_later(worker)
            return False
        told = await self._told(self._dial, after)
        if told:
            self._pause = _FIRST_PAUSE
        else:
            self.close()
            if self._hung_up:  # the first time it may be the end, which nobody is to wait for
                await self._look_again_later(worker)
        self._hung_up = not told
        return told

    def close(self) -> None:
        if self._dial is not None:
            self._dial.close()
            self._dial = None

    async def _told(self, dial: Dial, after: int) -> bool:
        try:
            await dial.send({"op": "watch", "after": after})
            return await dial.receive() is not None
        except OSError:
            return False

    async def _look_again_later(self, worker: ProcessIdentity | None) -> None:
        if self._pause >= _ASK_AFTER and worker is not None and not self._asked:
            self._asked = signal_process(worker, signal.SIGUSR1)
        await asyncio.sleep(self._pause)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)


class News:
    """One watch for all followers of a run in this process: a worker takes only so many connections."""

    def __init__(self, paths: RunPaths) -> None:
        self.followers = 0
        self._watch = Watch(paths)
        self._seen = 0  # the furthest that any follower has read
        self._task: asyncio.Task[bool] | None = None

    def after(self, seq: int, worker: ProcessIdentity | None) -> asyncio.Future[bool]:
        """What `Watch.news` says of events beyond ``seq``, to all who ask; nobody may cancel it."""
        if seq < self._seen:
            return _there_is_more()
        self._seen = seq
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch.news(seq, worker))
        # Another follower may have begun it further back: then it ends at once, and all look again.
        return self._task

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._watch.close()


def _there_is_more() -> asyncio.Future[bool]:
    told: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    told.set_result(True)
    return told


class Newsroom:
    """The `News` of each run that is being followed."""

    def __init__(self) -> None:
        self._news: dict[str, News] = {}

    @contextmanager
    def of(self, run_id: str, paths: RunPaths) -> Iterator[News]:
        news = self._news.setdefault(run_id, News(paths))
        news.followers += 1
        try:
            yield news
        finally:
            news.followers -= 1
            if news.followers == 0:
                del self._news[run_id]
                news.close()


class LastWord:
    """Patience with the owner: a run is over by its evidence, and log and journal are yet to say so.

    Without an owner nobody will, unless the next one comes soon.  One that stands still, or whose disk
    is full, has its bound as well: what evidence shows is so without its word.
    """

    def __init__(self) -> None:
        self._clock = asyncio.get_running_loop().time
        self._pause = _FIRST_PAUSE
        self._began: float | None = None
        self._owned = 0.0

    def may_come(self, owned: bool) -> bool:
        """Is it worth to wait on?  ``owned``: does anybody own the directory now?"""
        now = self._clock()
        if self._began is None:
            self._began = self._owned = now
        if owned:
            self._owned = now
        return now - self._owned < _UNOWNED_SECONDS and now - self._began < _OWNED_SECONDS

    async def moment(self) -> None:
        """The time until the next look; ever longer ones."""
        await asyncio.sleep(self._pause)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)


class WorkerEnd:
    """What one waiter of a run knows of its worker, to be told of the run's end without asking for it.

    A pidfd tells of a process's end, but the worker of a short run may live on for another one.  That it lets
    go of the log is told by inotify; where that is not to be had, or has told of something else, the run is
    looked at now and then, until it has been seen at work for longer than a short run takes.

    ``log_of``: the path of a run's log.
    """

    def __init__(self, log_of: Callable[[RunView], Awaitable[str]]) -> None:
        self._log_of = log_of
        self._loop = asyncio.get_running_loop()
        self._told = asyncio.Event()
        self._inotify = -1
        self._attempt = 0
        self._worker: ProcessIdentity | None = None
        self._since = 0.0  # when it was first known
        self._looked = 0.0  # what is seen now was not read earlier
        self._pause = _FIRST_PAUSE

    async def wait(self, seen: RunView, timeout: float | None) -> None:
        """Return when there may be news of a run that was ``seen`` open after the last call, or in time."""
        worker = identity_of(seen.worker)
        if worker != self._worker:
            self._worker, self._since, self._looked = worker, self._loop.time(), 0.0
        if seen.attempt != self._attempt:
            self._attempt = seen.attempt
            self._listen(await self._log_of(seen))
            return  # it may have ended before
        watch = None if worker is None else ExitWatch.of(worker, self._told.set)
        bounds = (timeout, self._patience(exit_is_told=watch is not None))
        try:
            async with asyncio.timeout(min((one for one in bounds if one is not None), default=None)):
                await self._told.wait()
        except TimeoutError:
            pass
        finally:
            self._told.clear()
            self._looked = self._loop.time()
            if watch is not None:
                watch.close()

    def close(self) -> None:
        """Listen no more.  Idempotent."""
        if self._inotify >= 0:
            self._loop.remove_reader(self._inotify)
            inotify.close(self._inotify)
            self._inotify = -1

    def _patience(self, *, exit_is_told: bool) -> float | None:
        """Seconds up to the next look in any case."""
        if exit_is_told and self._looked - self._since > SHORT_RUN_SECONDS:
            return None
        if exit_is_told and self._inotify >= 0:
            return SHORT_RUN_SECONDS
        pause, self._pause = self._pause, min(self._pause * 2, _LONGEST_PAUSE)
        return pause

    def _listen(self, log: str) -> None:
        self.close()
        with suppress(OSError):  # no watch left, say
            self._inotify = inotify.watch_release(log)
            self._loop.add_reader(self._inotify, self._released)

    def _released(self) -> None:
        self.close()
        self._told.set()
