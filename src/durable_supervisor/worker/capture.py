"""One output stream of the program: from its pipe through the filters into the log."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable

from .pace import PAUSE_SECONDS, Pace
from .poller import END, READ, Poller
from .record import Recorder
from .redact import OutputFilter
from .width import NARROW, Width, is_full


class Capture:
    """Reads whatever the pipe or terminal holds, always and, but for its `Pace`, at once: the program never
    waits for a reader.

    What is kept of it is decided by the log's own bounds; with ``terminate_at`` set,
    `exceeded` turns true once the stream is longer.

    With a ``window`` it does wait, for who acknowledges: once so many recorded bytes are ahead of it,
    nothing more is read, and the program's next write blocks when its pipe is full.
    Without one, ``may_widen`` lets the pipe hold more while the program writes as fast as it can.

    ``awaited``: does anybody wait for an event right now?  Without it all is read at once.
    """

    def __init__(
        self,
        stream: str,
        fd: int,
        output_filter: OutputFilter,
        recorder: Recorder,
        *,
        terminate_at: int | None = None,
        window: int | None = None,
        may_widen: bool = False,
        awaited: Callable[[], bool] | None = None,
    ) -> None:
        self.stream = stream
        self.open = True
        self.exceeded = False
        self.held = False  # nothing is read before somebody acknowledges
        self.seen = 0  # bytes read from the program
        self._fd = fd
        self._recorder = recorder
        self._terminate_at = terminate_at
        self._recorded = 0
        self._window = window
        self._width = Width(fd)
        self._may_widen = may_widen
        self._acknowledged = 0
        self._active_at = 0.0
        self._awaited = awaited
        self._pace = Pace() if awaited is not None and window is None else None
        self._pause = f"pause {stream}"  # a timer's name
        self._pauses = False  # until that is due, nothing is read but by `catch_up`
        self._filter = output_filter
        os.set_blocking(fd, False)

    def start(self, poller: Poller) -> None:
        self._poller = poller
        poller.watch(self._fd, READ, self._ready)

    @property
    def active_at(self) -> float:
        """Monotonic time of the last bytes; now, while it is not the program who keeps us waiting."""
        return time.monotonic() if self.held or self._pauses else self._active_at

    def acknowledge(self, count: int) -> None:
        """Recorded bytes that were consumed, of the whole stream; to go back takes nothing back."""
        self._acknowledged = max(self._acknowledged, min(count, self._recorded))
        self.read_on()

    def open_window(self) -> None:
        """From now on nothing is held back."""
        self._window = None
        self.read_on()

    def _ready(self, events: int) -> None:
        self._read_in_order()

    def _read_in_order(self) -> None:
        before = self.seen
        caught_up = self._recorder.catch_up()
        self.read(self._poller)
        if self.open and not self._room():
            self.held = True
            # Not even for its end, which would wake us again and again.
            self._poller.forget(self._fd)
        elif self.open and self._pace is not None and self.seen > before:
            self._keep_pace(self._pace, self.seen - before, alone=not caught_up)

    def _keep_pace(self, pace: Pace, got: int, *, alone: bool) -> None:
        if not pace.may_pause(got, self._active_at):
            return
        if alone and self._awaited is not None and not self._awaited():
            self._pauses = True
            # Not forgotten: to watch it anew may fail, since what a user can watch is bounded (epoll(7)).
            self._poller.watch(self._fd, END, self._ready)
            self._poller.at(self._pause, self._active_at + PAUSE_SECONDS, self._resume)
        else:
            pace.reset(self._active_at)

    def _resume(self) -> None:
        self._end_pace_if_full()
        self._pauses = False
        self._read_in_order()  # at once: the poller would tell what there is in the next turn only
        if self.open and not self._pauses:
            self._poller.watch(self._fd, READ, self._ready)

    def _end_pace_if_full(self) -> None:
        if self._pace is not None and is_full(self._fd):
            self._pace = None  # the program may have waited, this once

    def catch_up(self) -> bool:
        """Read what has come in a pause, before anything later is recorded; true if it brought bytes."""
        if not self._pauses:
            return False
        self._end_pace_if_full()
        came = self.read(self._poller)
        if came and self._pace is not None:
            self._pace.reset(self._active_at)
        return came

    def read_on(self) -> None:
        """If there is a reason to hold back no more."""
        # Not for a few bytes: who acknowledges line by line would have them read, and recorded, line by line.
        enough = NARROW if self._window is None else min(self._window // 4, NARROW)
        if self.held and self._room() >= enough:
            self.held = False
            self._active_at = time.monotonic()
            self._poller.watch(self._fd, READ, self._ready)

    def _room(self) -> int:
        """How many bytes may be read now."""
        # What a full disk drops nobody gets to see, let alone to acknowledge, before there is room again.
        if self._window is None or self._recorder.log.full:
            return self._width.size
        return min(max(0, self._window + self._acknowledged - self._recorded), NARROW)

    def read(self, poller: Poller) -> bool:
        """One read; true if it brought bytes: not at end-of-file, nor from one that is empty or held back."""
        size = self._room() if self.open else 0
        if not size:
            return False
        try:
            data = os.read(self._fd, size)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            data = b""  # how a terminal says that nobody has it open any more (pty(7))
        if not data:
            self.close(poller)
            return False
        self.seen += len(data)
        self._active_at = time.monotonic()
        if self._may_widen and self._window is None:
            self._width.note(len(data), poller)
        self._store(self._filter.feed(data))
        return True

    def read_all(self, poller: Poller, bound: int) -> None:
        """Read until the pipe is empty or closed, at most ``bound`` bytes."""
        begin = self.seen
        while self.seen - begin < bound and self.read(poller):
            pass

    def close(self, poller: Poller) -> None:
        """End-of-file, or nobody left to wait for: what the filters held goes out."""
        if not self.open:
            return
        self.open = self.held = self._pauses = False
        poller.forget(self._fd)
        poller.cancel(self._pause)
        self._width.close(poller)
        os.close(self._fd)
        self._store(self._filter.finish())

    def _store(self, data: bytes) -> None:
        if data:
            self._recorded += len(data)
            if len(data) < 2 * NARROW:
                self._recorder.output(self.stream, data)
            else:
                self._store_pieces(data)
            self.exceeded = self._terminate_at is not None and self._recorded > self._terminate_at

    def _store_pieces(self, data: bytes) -> None:
        """A wide read becomes several events: who writes one as JSON would have a page fault for each 4 KiB
        of a larger text, since the C library maps blocks of 128 KiB and more anew each time (mallopt(3)).
        """
        for begin in range(0, len(data), NARROW):
            self._recorder.output(self.stream, data[begin : begin + NARROW])
