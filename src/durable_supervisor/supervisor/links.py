"""What the owner holds on to of a live worker: its channel, and its end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from enum import Enum

from ..journal.rows import RunRow
from ..model.identity import ProcessIdentity
from ..process import children, forks
from ..process.channel import FrameError, FrameParser, encode_frame
from ..process.failpoints import failpoint
from ..process.identity import Liveness, probe
from ..worker.spec import FREE
from .ears import Ears
from .spare import KeptWorker


class Word(Enum):
    """What is new about a dispatched run."""

    RELEASED = "released"  # its program was let go
    FINISHED = "finished"  # its worker says that all is over: its receipt is on the disk
    REFUSED = "refused"  # its worker says that it never began
    ENDED = "ended"  # the channel has closed, after the worker had said that all is over
    CLOSED = "closed"  # the channel has closed without a word


# What to look at the run's evidence for.
OnNews = Callable[["WorkerLink", Word], None]


class WorkerLink:
    """The channel (a socket of `forks.socketpair`) to a worker that this process started.

    Messages only say *look*: every fact is read from the run log.  ``first_word``
    resolves at the first of queued, released, not started, finished, the channel's end, or a word of ours.
    """

    def __init__(self, row: RunRow, channel: socket.socket, ears: Ears, on_news: OnNews) -> None:
        self.row = row  # as the journal had it last
        self.run_id = row.run_id
        loop = asyncio.get_running_loop()
        self.first_word: asyncio.Future[str] = loop.create_future()
        self.ended = False  # the worker said so, or the channel has
        self._awaiting_end: set[asyncio.Future[None]] = set()
        self._loop = loop
        self._channel = channel
        self._ears = ears
        self._on_news = on_news
        self._parser = FrameParser()
        self.told_end = False  # the worker said that all is over
        self.worker: KeptWorker | None = None  # where it may have further runs
        self._unsent = b""
        self._asked: dict[str, asyncio.Future[dict[str, object] | None]] = {}
        self._turn = asyncio.Lock()  # to send a frame
        self._sending: set[asyncio.Task[None]] = set()
        channel.setblocking(False)

    async def until_ended(self, timeout: float | None) -> None:
        """Return when it has, at the latest after ``timeout`` seconds."""
        if self.ended:
            return
        waiter = self._loop.create_future()  # each its own: one that is cancelled takes no other with it
        self._awaiting_end.add(waiter)
        try:
            if timeout is None:
                await waiter
            else:
                await asyncio.wait((waiter,), timeout=timeout)
        finally:
            self._awaiting_end.discard(waiter)

    def send_ahead(self, frame: bytes) -> None:
        """Put as much of the spec on the channel as fits, for the worker to find when it begins."""
        sent = self._channel.send(frame, socket.MSG_NOSIGNAL)
        self._unsent = frame[sent:]

    async def hand_over(self, seconds: float) -> None:
        """Send the rest of the spec.  Raises OSError when the worker is gone, or ``seconds`` are over, before
        it has all of it.
        """
        if self._unsent:
            async with asyncio.timeout(seconds), self._turn:  # nothing else may get in between
                await self._loop.sock_sendall(self._channel, self._unsent)
            self._unsent = b""
        self._ears.add(self._channel.fileno(), self._ready)

    async def ask(self, message: dict[str, object], blob: bytes) -> dict[str, object] | None:
        """The worker's answer to a control, which may be sent before the worker has its socket.

        None when the channel ends first.
        """
        if self.closed:
            return None
        control_id = str(message["id"])
        answer: asyncio.Future[dict[str, object] | None] = self._loop.create_future()
        self._asked[control_id] = answer
        _ = self._send_whole(encode_frame(message, blob), lambda: control_id in self._asked)
        try:
            return await answer
        finally:
            self._asked.pop(control_id, None)

    async def tell(self, message: dict[str, object]) -> bool:
        """Send what has no answer.  False once the channel has ended."""
        if not self.closed:
            await asyncio.wait({self._send_whole(encode_frame(message), lambda: True)})
        return not self.closed

    @property
    def closed(self) -> bool:
        return self._channel.fileno() < 0

    def close(self) -> None:
        """Let go.  The worker does not mind; unless it is free, it has no further run."""
        if self.worker is not None and not self.worker.free:
            self.worker.close()
        if self._channel.fileno() >= 0:
            self._ears.remove(self._channel.fileno())
            if self._unsent or self._sending:
                self._loop.remove_writer(self._channel.fileno())
            forks.close_socket(self._channel)
        for task in self._sending:
            task.cancel()
        self._settle("closed")

    def hang_up(self) -> None:
        """The channel is of no more use: close it, and say so."""
        self.close()
        self._on_news(self, Word.ENDED if self.told_end else Word.CLOSED)

    def _send_whole(self, frame: bytes, wanted: Callable[[], bool]) -> asyncio.Task[None]:
        """In a task of its own: half a frame, of a caller that gave up, would swallow the next one."""
        task = asyncio.create_task(self._send(frame, wanted))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)
        return task

    async def _send(self, frame: bytes, wanted: Callable[[], bool]) -> None:
        async with self._turn:
            if wanted():  # else its caller gave up before it was sent at all
                with suppress(OSError):  # the channel's end is seen by its reader
                    await self._loop.sock_sendall(self._channel, frame)
                failpoint("control.sent")

    def _ready(self) -> None:
        try:
            data = self._channel.recv(64 * 1024)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.hang_up()
            return
        try:
            messages = [message for message, _ in self._parser.feed(data)]
        except FrameError:
            self.hang_up()
            return
        for message in messages:
            if message.get("type") == FREE:  # the channel's end, of a worker that lives on
                self._freed(message.get("pid"))
                return
            asked = self._asked.pop(str(message.get("id")), None)
            if asked is None:
                self._heard(str(message.get("type")))
            elif not asked.done():
                asked.set_result(message)

    def _heard(self, word: str) -> None:
        if word not in ("queued", "released", "not_started", "finished"):
            return
        self.say_first(word)
        if word == "queued":
            return
        if word == "released":
            self._on_news(self, Word.RELEASED)
            return
        self.told_end = True
        self._end()
        self._on_news(self, Word.FINISHED if word == "finished" else Word.REFUSED)

    def say_first(self, word: str) -> None:
        """Unless there was a word already."""
        if not self.first_word.done():
            self.first_word.set_result(word)

    def _freed(self, pid: object) -> None:
        if self.worker is not None and isinstance(pid, int):
            self.worker.freed(pid)
        self.hang_up()

    def _settle(self, word: str) -> None:
        for asked in self._asked.values():
            if not asked.done():
                asked.set_result(None)
        self._asked.clear()
        self.say_first(word)
        self._end()

    def _end(self) -> None:
        self.ended = True
        for waiter in self._awaiting_end:
            if not waiter.done():
                waiter.set_result(None)
        self._awaiting_end.clear()


class ExitWatch:
    """Tells when a process ends, through its pidfd: no polling, no signal handler, child or not.

    A child is reaped by its exact pid, so the host's other children and its
    SIGCHLD handling are left alone.
    """

    def __init__(self, pidfd: int, on_exit: Callable[[], None], *, child: bool) -> None:
        self._loop = asyncio.get_running_loop()
        self._pidfd = forks.guard(pidfd)
        self._on_exit = on_exit
        self._child = child
        self._loop.add_reader(pidfd, self._exited)

    @classmethod
    def of_child(cls, pid: int, on_exit: Callable[[], None]) -> ExitWatch | None:
        """None where the kernel has no pidfd (before 5.3)."""
        children.made(pid)
        try:
            return cls(os.pidfd_open(pid), on_exit, child=True)
        except OSError:
            return None

    @classmethod
    def of(cls, identity: ProcessIdentity, on_exit: Callable[[], None]) -> ExitWatch | None:
        """Of any process proven alive now; None if it is not, or cannot be watched."""
        try:
            pidfd = os.pidfd_open(identity.pid)
        except OSError:
            return None
        if probe(identity) is not Liveness.ALIVE:
            os.close(pidfd)
            return None
        return cls(pidfd, on_exit, child=False)

    def kill(self) -> None:
        """SIGKILL, to this very process: its pid may be another's once somebody has reaped it."""
        if self._pidfd >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def close(self) -> None:
        """Stop watching.  A child that ends later is reaped when the next one is made, or by init."""
        if self._pidfd >= 0:
            pidfd, self._pidfd = self._pidfd, -1
            self._loop.remove_reader(pidfd)
            forks.close(pidfd)

    def _exited(self) -> None:
        if self._child:
            try:
                os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOHANG)
            except OSError:
                pass  # reaped by the host, or SIGCHLD is ignored there
        self.close()
        self._on_exit()
