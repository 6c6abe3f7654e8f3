"""What the owner holds on to of a live worker: its channel, and its end."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from enum import Enum

from ...journal.rows import RunRow
from ...model.identity import ProcessIdentity
from ...process import children, forks
from ...process.channel import FrameError, FrameParser, encode_frame
from ...process.failpoints import failpoint
from ...process.identity import Liveness, probe
from ...worker.spec import FREE
from ..dispatch.dispatch import FIRST_WORDS
from ..dispatch.first_word import FirstWord
from .channel import Assignment, Channel


class Word(Enum):
    """What is new about a dispatched run."""

    RELEASED = "released"  # its program was let go
    FINISHED = "finished"  # its worker says that all is over: its receipt is on the disk
    REFUSED = "refused"  # its worker says that it never began
    ENDED = "ended"  # the channel is no more this run's, after the worker had said that all is over
    CLOSED = "closed"  # the same, without a word


# What to look at the run's evidence for.
OnNews = Callable[["WorkerLink", Word], None]


class WorkerLink:
    """The channel to a worker that this process started, for as long as it has this run.

    Messages only say *look*: every fact is read from the run log.
    """

    def __init__(self, row: RunRow, assignment: Assignment, on_news: OnNews) -> None:
        self.row = row  # as the journal had it last
        self.run_id = row.run_id
        loop = asyncio.get_running_loop()
        self.first_word = FirstWord()
        self.ended = False  # the worker said so, or the channel is closed
        self._awaiting_end: set[asyncio.Future[None]] = set()
        self._loop = loop
        self._channel: Channel | None = assignment.channel
        self._unsent = assignment.unsent
        self.worker = assignment.worker  # where it may have further runs
        self._on_news = on_news
        self._parser = FrameParser()
        self.told_end = False  # the worker said that all is over
        self._asked: dict[str, asyncio.Future[dict[str, object] | None]] = {}
        self._send_lock = asyncio.Lock()  # one frame at a time
        self._sending: set[asyncio.Task[None]] = set()

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

    async def hand_over(self, seconds: float) -> None:
        """Send the rest of the spec.

        Raises OSError when the worker is gone, the link closed, or ``seconds`` over, before it has all of it.
        """
        if self._unsent:
            await asyncio.sleep(0)  # a timeout needs a task, which `EagerWork` has from here on
            async with asyncio.timeout(seconds), self._send_lock:  # nothing else may get in between
                if self._channel is not None:
                    await self._loop.sock_sendall(self._channel.end, self._unsent)
        # An empty slice would keep all of the spec, stdin and environment, for as long as the run takes.
        self._unsent = memoryview(b"")
        if self._channel is None:
            raise ConnectionAbortedError(errno.ECONNABORTED, "the link is closed")
        self._channel.listen(self._read)

    async def ask(self, message: dict[str, object], blob: bytes) -> dict[str, object] | None:
        """The worker's answer to a control, which may be sent before the worker has its socket.

        None when the channel is closed, or the worker free, before it.
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
        """Send what has no answer.  False once the channel is closed."""
        if not self.closed:
            await asyncio.wait({self._send_whole(encode_frame(message), lambda: True)})
        return not self.closed

    @property
    def closed(self) -> bool:
        """Is there no channel any more, or is it another run's?"""
        return self._channel is None

    def close(self) -> None:
        """Let go.  The worker does not mind; unless it is free, it has no further run."""
        if self.worker is not None and not self.worker.free:
            self.worker.close()
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()
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
        async with self._send_lock:
            if self._channel is not None and wanted():  # else its caller gave up before it was sent at all
                with suppress(OSError):  # the channel's end is seen by its reader
                    await self._loop.sock_sendall(self._channel.end, frame)
                failpoint("control.sent")

    def _read(self) -> None:
        if self._channel is None:
            return
        try:
            data = self._channel.end.recv(64 * 1024)
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
            if message.get("type") == FREE:  # the end for this run, of a worker that lives on
                self._freed(message, last=message is messages[-1])
                return
            asked = self._asked.pop(str(message.get("id")), None)
            if asked is None:
                self._heard(str(message.get("type")))
            elif not asked.done():
                asked.set_result(message)

    def _heard(self, word: str) -> None:
        if word not in FIRST_WORDS:
            return
        self.first_word.set(word)
        if word == "queued":
            return
        if word == "released":
            self._on_news(self, Word.RELEASED)
            return
        self.told_end = True
        self._end()
        self._on_news(self, Word.FINISHED if word == "finished" else Word.REFUSED)

    def _freed(self, message: dict[str, object], *, last: bool) -> None:
        """Leave the channel to the next run, unless there may be half a frame on it, in either direction.

        A whole one of ours that it has not read stands before the next spec, and so is for nobody.
        """
        whole = last and self._parser.between_frames and not self._sending
        pid = message.get("pid") if message.get("run") == self.run_id else None
        if whole and isinstance(pid, int) and self.worker is not None and self._channel is not None:
            self._channel = self.worker.taken_back(pid, self._channel)
        self.hang_up()

    def _settle(self, word: str) -> None:
        for asked in self._asked.values():
            if not asked.done():
                asked.set_result(None)
        self._asked.clear()
        self.first_word.set(word)
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
