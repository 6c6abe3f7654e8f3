"""The owner's journal: one writer, group commit, nothing half-written."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from ..model.errors import ErrorCode, Phase, SupervisorError
from . import migrate, opening, thread
from .answer import Answer
from .batch import Batches, Failed
from .bell import Bell
from .calls import Call, Calls
from .checkpoints import Checkpoints
from .errors import busy, is_busy, translate
from .reader import in_snapshot
from .room import WalRoom

T = TypeVar("T")

# From a commit that several shared to one of patient calls alone: they have something to do first.
DELAY_SECONDS = 0.002


class Journal:
    """``journal.db`` for the one process that owns the state directory (its lock is the caller's).

    Callers only await; one thread owns the connection, and everything that waits
    when it gets to work shares one transaction and one fsync.  A caller that is
    cancelled leaves either the whole of its work or nothing.

    There is no task for a host to cancel: the loop is told when a batch is done, and begins the next.
    """

    def __init__(
        self, path: str, writer: thread.Connection, reader: thread.Connection, busy_seconds: float
    ) -> None:
        self.path = path
        self._writer = writer
        self._reader = reader
        self._busy_seconds = busy_seconds
        self._calls = Calls()
        self._batches = Batches()
        self._busy = False  # a batch is in the thread, or about to go there
        self._alone = False  # did the last caller who presses come alone?
        self._later: asyncio.TimerHandle | None = None  # for calls that wait to share a commit
        self._at_rest = asyncio.Event()  # closing, and nothing is left to do
        self.bell = Bell()  # rings at every commit
        self.commits = 0  # transactions committed, and the calls that shared them
        self.committed_calls = 0
        self._closing = False
        self._pid = os.getpid()
        self._loop = asyncio.get_running_loop()
        self._closed: asyncio.Task[None] | None = None
        self._checkpoints = Checkpoints(writer, WalRoom(path), self._loop, lambda: self._busy)

    @classmethod
    async def open(
        cls,
        path: str | os.PathLike[str],
        *,
        create: bool = True,
        busy_seconds: float = opening.BUSY_SECONDS,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> Journal:
        """Open, and where needed make and migrate, the journal at ``path``.

        Raises SupervisorError ``JOURNAL_MISSING`` (no file and not ``create``),
        ``JOURNAL_NEWER`` and ``JOURNAL_CORRUPT`` (both before anything is written),
        ``STATE_DIR_REFUSED``, ``BUSY``, ``NO_SPACE``, ``UNSUPPORTED_PLATFORM``.
        """
        place = opening.find(path, create=create)
        known = migrate.load()
        reader = await thread.connect(partial(opening.open_reader, place, known, busy_seconds))
        try:
            writer = await thread.connect(partial(opening.open_writer, place, known, busy_seconds, now_ns()))
        except BaseException:
            await reader.close()
            raise
        return cls(place, writer, reader, busy_seconds)

    async def __aenter__(self) -> Journal:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def write(
        self, work: Callable[[sqlite3.Connection], T], *, durable: bool = True, patient: bool = False
    ) -> T:
        """Run ``work(conn)`` in the next transaction, as a whole or not; returns once that is committed.

        ``durable``: the commit survives power loss.  Otherwise it may be taken back
        by one (never out of order): for folds that the run logs can repeat.
        ``patient``: it may wait a moment for others to share its commit with, and to be in nobody's way.
        ``work`` may be run again after a rollback, so its only effects are on ``conn``.

        Raises what ``work`` raises, and SupervisorError ``BUSY`` (retryable, nothing
        written), ``NO_SPACE``, ``JOURNAL_CORRUPT``, ``JOURNAL_IO`` (perhaps written), ``SUPERVISOR_CLOSED``,
        ``FORKED_COPY``.
        Cancelled before its transaction begins, the work is dropped; after, it is applied whole.
        """
        self._check_open()
        now = self._loop.time()
        call = Call(work, durable, patient, Answer(self._loop), now, now + self._busy_seconds)
        if self._alone and not (patient or self._busy) and self._calls.may_bypass(now):
            self._submit([call], durable)
        else:
            self._calls.add(call)
            self._plan(now)
        answer: T = await call.answer
        return answer

    def hurry(self) -> None:
        """Let patient calls wait no longer."""
        self._calls.hurry()
        self._plan(self._loop.time())

    def aside(self, work: Callable[[], None]) -> None:
        """Have ``work``, which is short, done in our thread, behind what is under way there."""
        if not self._closing:
            self._writer.submit(lambda _: work())

    def run_idle_work(self) -> None:
        """A caller who came alone has been served: begin one of the things that are to be done besides.

        Begun by the clock they would meet the next caller; and one who comes often would put them off until
        there is so much to do that it keeps somebody waiting.
        """
        if self._busy or self._closing or not self._alone:
            return
        if self._calls.enough:
            self._begin()
        else:
            self._checkpoints.run_idle_work()

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run ``work(conn)`` in one read-only snapshot that sees every finished `write`.

        Never waits for the write lock.  Raises what ``work`` raises, and as `write` does.
        """
        self._check_open()
        try:
            return await self._reader.hop(partial(in_snapshot, work=work))
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise translate(error, Phase.READ) from error

    async def close(self) -> None:
        """Finish what was asked for, then close.  Idempotent; bounded by the busy timeout."""
        if self._closed is None:
            self._check_open()
            self._closing = True
            self.hurry()
            self._closed = self._loop.create_task(self._close(), name="journal-close")
        await asyncio.shield(self._closed)

    async def _close(self) -> None:
        await self._at_rest.wait()
        self._checkpoints.close()
        # The writer last: the last connection to go checkpoints and removes the -wal file.
        await self._reader.close()
        await self._writer.close()

    def _check_open(self) -> None:
        if os.getpid() != self._pid:
            raise _forked_error()
        if self._closing:
            raise _closed_error()

    def _plan(self, now: float) -> None:
        """Have what waits done: in the next turn of the loop, so that all callers of this one share it.

        At once where they come alone: should there be more of them this time, the others share the next.
        """
        if self._busy:
            return  # the end of that batch asks again
        if self._closing or self._calls.press(now):
            self._begin_soon()
        elif (ends := self._calls.gathering_ends) is not None:
            self._begin_by(ends)
        elif self._later is None and (ends := self._calls.patience_ends) is not None:
            self._later = self._loop.call_at(ends, self._due)

    def _begin_by(self, when: float) -> None:
        if self._later is not None:
            if self._later.when() <= when:
                return
            self._later.cancel()
        self._later = self._loop.call_at(when, self._due)

    def _due(self) -> None:
        self._later = None
        if not self._busy:  # else the end of that batch asks again
            self._begin()

    def _begin_soon(self) -> None:
        if self._alone:
            self._begin()
        else:
            self._busy = True
            self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
        batch = self._calls.take(self._loop.time())
        self._busy = bool(batch)
        if batch:
            if not all(call.patient for call in batch):
                self._alone = len(batch) == 1
            self._submit(batch, any(call.durable for call in batch))
        elif self._closing:
            self._at_rest.set()

    def _submit(self, batch: list[Call], durable: bool) -> None:
        self._busy = True
        works = [call.work for call in batch]
        work = partial(self._batches.run, works=works, durable=durable)
        self._writer.submit(work, partial(self._done, batch))

    def _done(self, batch: list[Call], results: list[object | Failed] | BaseException) -> None:
        if isinstance(results, BaseException):
            self._failed(batch, results)
            self._go_on()
            return
        self.commits += 1
        self.committed_calls += len(batch)
        try:
            if len(batch) == 1:
                _tell(batch[0], results[0])  # who comes alone goes on in this very turn
            else:  # each in a callback of its own: one that ends the loop takes no other along
                for call, result in zip(batch, results, strict=True):
                    self._loop.call_soon(_tell, call, result)
        finally:  # also where who goes on ends the loop
            self._loop.call_soon(self._committed, len(batch))  # who was answered goes first

    def _committed(self, calls: int) -> None:
        self.bell.ring()
        self._checkpoints.committed(calls)
        if self._calls.enough and not self._alone:  # else `run_idle_work` is called
            self._later = self._loop.call_later(DELAY_SECONDS, self._due)
        self._go_on()

    def _go_on(self) -> None:
        self._busy = False
        self._plan(self._loop.time())

    def _failed(self, batch: list[Call], error: BaseException) -> None:
        """Nothing was written.  Busy: try again with what has arrived since, within each call's time."""
        now = self._loop.time()
        again = []
        for call in batch:
            if is_busy(error) and now < call.deadline:
                again.append(call)
            else:
                typed = busy(Phase.RUN) if is_busy(error) else translate(error, Phase.RUN)
                typed.__cause__ = error
                self._loop.call_soon(_tell, call, Failed(typed))
        self._calls.put_back(again)


def _forked_error() -> SupervisorError:
    return SupervisorError(
        ErrorCode.FORKED_COPY,
        "this journal was opened before a fork; the copy must not use it",
        phase=Phase.OPEN,
        hint="open a supervisor of its own after the fork",
    )


def _closed_error() -> SupervisorError:
    return SupervisorError(
        ErrorCode.SUPERVISOR_CLOSED,
        "the journal is closed",
        hint="open the supervisor again; work already under way may have been applied whole",
    )


def _tell(call: Call, result: object | Failed) -> None:
    if call.answer.done():
        return
    if isinstance(result, Failed):
        call.answer.set_exception(result.typed())
    else:
        call.answer.set_result(result)
