"""How workers come into being: forked by the zygote, or started by exec where that is not to be had."""

from __future__ import annotations

import asyncio
import math
import os
import socket
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from ...process import forks
from ...process.failpoints import failpoint
from ...process.locks import keep_held, try_lock
from ...process.rights import send_fds
from ..dispatch.dispatch import new_channel
from .channel import Assignment, Channel
from .links import ExitWatch
from .spare import KeptWorker, SpareWorkers
from .spawn import spawn_or_record, spawn_zygote

if TYPE_CHECKING:
    from .prestarted import PrestartedWorker

_ANSWER_SECONDS = 5.0
_PASSING_SECONDS = 1.0
_PAUSE = 0.005

Blocking = Callable[[Callable[[], Any]], Coroutine[Any, Any, Any]]


class Source:
    """Where an owner's new workers come from.

    ``zygote``: forked by one from the first start on (True), from the second one on (None: a short-lived
    owner, such as a command line, makes one start and is gone), or never (False).  ``prestarted``: one that
    loads already, for the first start that no zygote serves.
    """

    __slots__ = ("_zygote_from", "prestarted")

    def __init__(self, zygote: bool | None = None, prestarted: PrestartedWorker | None = None) -> None:
        self._zygote_from: float = 2 if zygote is None else 1 if zygote else math.inf
        self.prestarted = prestarted

    def wants_zygote(self, start: int) -> bool:
        """From this start on, counted from 1?"""
        return start >= self._zygote_from


class Workers:
    """Starts workers.  The zygote is made when it begins to pay, and anew when it has died."""

    def __init__(self, blocking: Blocking, source: Source) -> None:
        self._blocking = blocking
        self._loop = asyncio.get_running_loop()
        self._source = source
        if source.prestarted is not None:
            source.prestarted.reap()
        self._zygote: _Zygote | None = None
        self._children: set[ExitWatch] = set()
        self._started = 0
        self._spare = SpareWorkers()

    def close(self) -> None:
        """The zygote ends, and so does who waits for a run; workers that have one go on."""
        self._spare.close()
        if self._source.prestarted is not None:
            self._source.prestarted.close()
        if self._zygote is not None:
            self._zygote.close()
        for watch in list(self._children):
            watch.close()

    def back(self, worker: KeptWorker) -> None:
        """The run that it had has ended."""
        self._spare.back(worker)

    async def start(self, run_id: str, frame: bytes, log: int, log_path: str) -> Assignment:
        """Give the locked ``log``, and as much of its spec's ``frame`` as fits the channel, to a worker.

        Closes ``log`` here, whatever happens: from then on the lock is the worker's alone.
        A worker that may have further runs is to be given `back`, or closed.
        Where the zygote was expected and did not do it, the worker logs why.  Raises
        OSError when no worker could be started.
        """
        self._started += 1
        try:
            assignment = self._spare.give(frame, log)
            if assignment is None:
                ours, theirs, unsent = new_channel(frame)
        except BaseException:  # no memory, say
            forks.close(log)
            raise
        if assignment is not None:
            forks.close(log)
            return assignment
        try:
            worker = await self._start_new(run_id, theirs.fileno(), log, log_path)
            return Assignment(Channel(ours), unsent, worker)
        except BaseException:  # of a cancelled loop, say: whoever was started and has no whole spec leaves
            forks.close_socket(ours)
            raise
        finally:
            forks.close_socket(theirs)

    async def _start_new(self, run_id: str, channel: int, log: int, log_path: str) -> KeptWorker | None:
        """As `start`, with the worker's end of a new ``channel``."""
        missed: str | None = None
        try:
            zygote = self._ready_zygote()
            if zygote is not None:
                kept, missed = await self._fork(zygote, run_id, channel, log)
                if missed is None:
                    return kept
                if zygote.dead:
                    # It may have forked before it died. Then the worker holds the lock.
                    log = _exchanged(log, log_path)
                    if not await self._ours_alone(log):
                        return None
            elif self._source.prestarted is not None and self._source.prestarted.give(channel, log):
                return None
            blocking = self._blocking
            self._reap_later(await spawn_or_record(blocking, run_id, channel, log, log_path, missed))
            return None
        finally:
            if log >= 0:
                forks.close(log)

    async def _fork(
        self, zygote: _Zygote, run_id: str, channel: int, log: int
    ) -> tuple[KeptWorker | None, str | None]:
        """As `_Zygote.fork`, of a worker that may have further runs where there is room for it."""
        kept = self._spare.keep()
        missed: str | None = "cancelled"
        try:
            missed = await zygote.fork(run_id, [log, channel])
        finally:
            if missed is not None and kept is not None:
                self._spare.drop(kept)
        return kept, missed

    def _ready_zygote(self) -> _Zygote | None:
        if self._zygote is not None and self._zygote.dead:
            self._zygote = None
        if self._zygote is None and self._source.wants_zygote(self._started):
            self._zygote = _Zygote.spawn()
        return self._zygote

    async def _ours_alone(self, log: int) -> bool:
        """Take the whole lock, unless a worker has it.

        Others have a copy in passing: a process that is being made and is not another program yet, or a
        message to the zygote that the kernel has not thrown away.
        """
        deadline = self._loop.time() + _PASSING_SECONDS
        while not try_lock(log):
            if self._loop.time() >= deadline:
                return False
            await asyncio.sleep(_PAUSE)
        return True

    def _reap_later(self, pid: int) -> None:
        holder: list[ExitWatch] = []

        def exited() -> None:
            self._children.difference_update(holder)

        watch = ExitWatch.of_child(pid, exited)
        if watch is not None:
            holder.append(watch)
            self._children.add(watch)


def _exchanged(log: int, path: str) -> int:
    """Another descriptor of a log for ours, which is closed: while we hold a copy, its lock is no proof.

    A byte of it stays held all the while, or a reconciler could find the run abandoned.  Raises OSError; then
    ``log`` is still open.
    """
    fd = forks.opened(lambda: os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW))
    try:
        keep_held(log, fd)
    except OSError:
        forks.close(fd)
        raise
    forks.close(log)
    return fd


class _Zygote:
    """Our end of the zygote's control socket."""

    def __init__(self, pid: int, control: socket.socket) -> None:
        self.dead = False
        self._loop = asyncio.get_running_loop()
        self._control = control
        self._answers: dict[str, asyncio.Future[tuple[str, int]]] = {}
        self._gone = self._loop.create_future()
        control.setblocking(False)
        self._loop.add_reader(control.fileno(), self._answered)
        self._watch = ExitWatch.of_child(pid, self._exited)

    @classmethod
    def spawn(cls) -> _Zygote | None:
        """None where a process cannot be had, or its death could not be watched."""
        try:
            ours, theirs = forks.socketpair(socket.SOCK_SEQPACKET)
        except OSError:
            return None
        try:
            zygote = cls(spawn_zygote(theirs.fileno()), ours)
        except OSError:
            forks.close_socket(ours)
            return None
        finally:
            forks.close_socket(theirs)
        if zygote._watch is None:
            zygote.close()
            return None
        return zygote

    async def fork(self, run_id: str, descriptors: list[int]) -> str | None:
        """None once it has forked the worker; else why it did not (and, if `dead`, may have)."""
        answer: asyncio.Future[tuple[str, int]] = self._loop.create_future()
        self._answers[run_id] = answer
        try:
            send_fds(self._control, run_id.encode("ascii"), descriptors)
        except OSError as error:
            del self._answers[run_id]
            return f"zygote unreachable ({error.errno})"
        failpoint("start.zygote_asked")
        patience = self._loop.call_later(_ANSWER_SECONDS, _settle, answer, "silent", 0)
        try:
            word, number = await answer
        finally:
            patience.cancel()
            self._answers.pop(run_id, None)
        if word == "silent" and self._watch is not None:
            self._watch.kill()  # what it did is not known: end it, and let the lock tell
        if word in ("silent", "died"):
            await asyncio.shield(self._gone)
            return f"zygote {word}"
        return None if word == "pid" else f"fork refused ({number})"

    def close(self) -> None:
        if self._control.fileno() >= 0:
            self._loop.remove_reader(self._control.fileno())
            forks.close_socket(self._control)
        self.dead = True
        for answer in self._answers.values():
            _settle(answer, "died", 0)

    def _answered(self) -> None:
        try:
            message = self._control.recv(256)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        if not message:
            self.close()
            return
        run_id, word, number = message.decode("ascii").split(" ")
        waiting = self._answers.get(run_id)
        if waiting is not None:
            _settle(waiting, word, int(number))

    def _exited(self) -> None:
        if not self._gone.done():
            self._gone.set_result(None)
        self.close()


def _settle(answer: asyncio.Future[tuple[str, int]], word: str, number: int) -> None:
    if not answer.done():
        answer.set_result((word, number))
