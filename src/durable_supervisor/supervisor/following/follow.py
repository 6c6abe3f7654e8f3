"""Wait for the end of a run, and for the last word on it.  Told, where that can be, not polling."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from ...model.identity import ProcessIdentity, identity_of
from ...process import inotify
from ...worker.spec import SHORT_RUN_SECONDS
from ..workers.links import ExitWatch

if TYPE_CHECKING:
    from ...model.view import RunView

_FIRST_PAUSE = 0.005
_LONGEST_PAUSE = 0.25
_UNOWNED_SECONDS = 1.0  # the next owner is there within a fraction of it, if there is one
_OWNED_SECONDS = 15.0  # many runs that were lost at once are judged in a few


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
