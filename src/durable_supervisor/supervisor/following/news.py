"""News of a run's log for all who follow it here: told by its worker, not polled for."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ...model.identity import ProcessIdentity
from ...process.channel import FrameError, FrameParser, encode_frame, head_of
from ...process.short_path import short_path
from ...process.signals import signal_process
from ...runlog.nonblocking import NonblockingReader
from ...runlog.paths import RunPaths

_CHUNK = 4096  # one word comes at a time
_FIRST_PAUSE = 0.005
_LONGEST_PAUSE = 0.25
_ASK_AFTER = 0.05


class Watch:
    """A connection to a worker: calls ``told`` with the log's head for each time it was asked, or with 0 when
    the worker has hung up.

    Without the tasks and streams of asyncio, each of which is another turn of the loop between an event and
    its followers.  One word answers one question, so neither side ever has much to send.
    """

    def __init__(self, end: socket.socket, told: Callable[[int], None]) -> None:
        self._end = end
        self._told = told
        self._parser: FrameParser | None = None  # once there was anything but one whole head
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(end.fileno(), self._ready)

    @classmethod
    def connect(cls, paths: RunPaths, told: Callable[[int], None]) -> Watch | None:
        """None when nobody listens there, or who does has enough at the door."""
        end = None
        try:
            end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            _connect(end, paths)
        except OSError:
            if end is not None:
                end.close()
            return None
        return cls(end, told)

    def ask(self, after: int) -> bool:
        """To be told of a head beyond ``after``.  False where the worker has hung up."""
        question = encode_frame({"op": "watch", "after": after})
        try:
            return self._end.send(question, socket.MSG_NOSIGNAL) == len(question)
        except OSError:
            return False

    def close(self) -> None:
        """Idempotent."""
        if self._end.fileno() >= 0:
            self._loop.remove_reader(self._end.fileno())
            self._end.close()

    def _ready(self) -> None:
        try:
            data = self._end.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        head = head_of(data) if self._parser is None else 0
        if head:
            self._told(head)
        else:
            self._parse(data)

    def _parse(self, data: bytes) -> None:
        """Parts of a word, several of them, an end, or nonsense."""
        self._parser = self._parser or FrameParser()
        try:
            heads = [message.get("head") for message, _ in self._parser.feed(data)]
        except FrameError:
            heads = [None]
        if not data or not all(isinstance(head, int) for head in heads):
            self.close()
            self._told(0)
        elif heads:
            self._told(int(str(heads[-1])))


class News:
    """One `Watch` and one `NonblockingReader` for all followers of a run in this process: a
    worker takes only so many connections.

    While nobody listens at the worker's socket (not made yet, deleted, or gone), or who does takes no more
    connections, they look again, ever more slowly, and a live worker is asked once to make its socket anew.
    """

    def __init__(self, paths: RunPaths) -> None:
        self.followers = 0
        self.nonblocking = NonblockingReader(paths)
        self._paths = paths
        self._loop = asyncio.get_running_loop()
        self._watch: Watch | None = None
        self._waiting: dict[asyncio.Future[int], int] = {}  # beyond which seq each waits
        self._worker: ProcessIdentity | None = None
        self._answer_comes = False  # from the worker, or the timer
        self._seen = 0  # the furthest that any follower has read
        self._pause = _FIRST_PAUSE
        self._timer: asyncio.TimerHandle | None = None
        self._signalled = False
        self._hung_up = False  # it was the last time

    def after(self, seq: int, worker: ProcessIdentity | None) -> asyncio.Future[int]:
        """The head, once the worker says that it is beyond ``seq``: so it lives.

        0 where nobody tells, or the worker is gone: then it is to be looked whether there is anything new.
        """
        told: asyncio.Future[int] = self._loop.create_future()
        if seq < self._seen:
            told.set_result(self._seen)
            return told
        self._seen = seq
        self._worker = worker
        if len(self._waiting) >= self.followers:  # somebody has left
            self._waiting = {told: seq for told, seq in self._waiting.items() if not told.done()}
        self._waiting[told] = seq
        if not self._answer_comes:
            self._ask()
        return told

    def close(self) -> None:
        """Listen no more.  Its `NonblockingReader` is closed by whoever may wait for that."""
        if self._timer is not None:
            self._timer.cancel()
        self._let_go()

    def _ask(self) -> None:
        """Whoever waits furthest back is told first; what is no news to the others is asked for again."""
        self._answer_comes = True
        if self._watch is None:
            self._watch = Watch.connect(self._paths, self._heard)
        if self._watch is None:
            self._look_again_later()
        elif not self._watch.ask(min(self._waiting.values())):
            self._heard(0)

    def _heard(self, head: int) -> None:
        if head:
            self._hung_up = False
            self._pause = _FIRST_PAUSE
            self._tell(head)
            if self._waiting:
                self._ask()
            return
        self._let_go()
        if self._hung_up:  # the first time it may be the end, which nobody is to wait for
            self._look_again_later()
        else:
            self._hung_up = True
            self._tell(0)

    def _tell(self, head: int) -> None:
        self._answer_comes = False
        for told, seq in list(self._waiting.items()):
            if not head or seq < head:
                del self._waiting[told]
                if not told.done():
                    told.set_result(head)

    def _look_again_later(self) -> None:
        if self._pause >= _ASK_AFTER and self._worker is not None and not self._signalled:
            self._signalled = signal_process(self._worker, signal.SIGUSR1)
        self._timer = self._loop.call_later(self._pause, self._tell, 0)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)

    def _let_go(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None


class Newsroom:
    """The `News` of each run that is being followed.  ``close_nonblocking``: off the loop, as it may wait."""

    def __init__(self, close_nonblocking: Callable[[NonblockingReader], None]) -> None:
        self._news: dict[str, News] = {}
        self._close_nonblocking = close_nonblocking

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
                self._close_nonblocking(news.nonblocking)


def _connect(end: socket.socket, paths: RunPaths) -> None:
    """Raises OSError."""
    folder, name = os.path.split(paths.socket)
    with short_path(folder) as place:
        end.connect(f"{place}/{name}")
