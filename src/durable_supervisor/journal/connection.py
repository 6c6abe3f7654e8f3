"""The owner's journal: one writer, group commit, nothing half-written."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import aiosqlite

from ..model.errors import ErrorCode, Phase, SupervisorError
from . import files, migrate, thread
from .batch import Batches, Done, Failed
from .bell import Bell
from .calls import Call, Calls
from .checkpoints import LULL_SECONDS, SQL_LAST_RESORT, Checkpoints
from .errors import busy, is_busy, is_half_made, missing, translate
from .reader import in_snapshot

T = TypeVar("T")

BUSY_SECONDS = 15.0  # how long a call waits for another process's write lock
OLDEST_SQLITE = (3, 37, 0)  # STRICT tables, RETURNING


class Journal:
    """``journal.db`` for the one process that owns the state directory (its lock is the caller's).

    Callers only await; one thread owns the connection, and everything that waits
    when it gets to work shares one transaction and one fsync.  A caller that is
    cancelled leaves either the whole of its work or nothing.

    There is no task for a host to cancel: the loop is told when a batch is done, and begins the next.
    """

    def __init__(
        self, path: str, writer: aiosqlite.Connection, reader: aiosqlite.Connection, busy_seconds: float
    ) -> None:
        self.path = path
        self._writer = writer
        self._reader = reader
        self._busy_seconds = busy_seconds
        self._calls = Calls()
        self._batches = Batches()
        self._busy = False  # a batch is in the thread, or about to go there
        self._later: asyncio.TimerHandle | None = None  # for calls that wait patiently
        self._at_rest = asyncio.Event()  # closing, and nothing is left to do
        self.bell = Bell()  # rings at every commit
        self.commits = 0  # transactions committed, and the calls that shared them
        self.committed_calls = 0
        self._closing = False
        self._pid = os.getpid()
        self._loop = asyncio.get_running_loop()
        self._closed: asyncio.Task[None] | None = None
        self._checkpoints = Checkpoints(writer, self._loop, lambda: self._busy)

    @classmethod
    async def open(
        cls,
        path: str | os.PathLike[str],
        *,
        create: bool = True,
        busy_seconds: float = BUSY_SECONDS,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> Journal:
        """Open, and where needed make and migrate, the journal at ``path``.

        Raises SupervisorError ``JOURNAL_MISSING`` (no file and not ``create``),
        ``JOURNAL_NEWER`` and ``JOURNAL_CORRUPT`` (both before anything is written),
        ``STATE_DIR_REFUSED``, ``BUSY``, ``NO_SPACE``, ``UNSUPPORTED_PLATFORM``.
        """
        _check_sqlite()
        place = files.absolute(path)
        if not files.check(place):
            if not create:
                raise missing(Phase.OPEN)
            files.create(place)
        migrations = migrate.load()
        # Read-only first: a journal of a newer version must not even be checkpointed.
        reader = await _connect(files.read_only_uri(place), uri=True)
        try:
            try:
                await _patiently(reader, partial(migrate.check_version, known=len(migrations)), busy_seconds)
            except SupervisorError as error:
                if error.__cause__ is None or not is_half_made(error.__cause__):
                    raise
            files.narrow(place)
            writer = await _connect(place, uri=False)
        except BaseException:
            await reader.close()
            raise
        try:
            await _patiently(writer, _configure, busy_seconds)
            await _patiently(
                writer, partial(migrate.migrate, migrations=migrations, now_ns=now_ns()), busy_seconds
            )
        except BaseException:
            await reader.close()
            await writer.close()
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
        call = Call(work, durable, patient, self._loop.create_future(), now, now + self._busy_seconds)
        self._calls.add(call)
        self._plan()
        answer: T = await call.answer
        return answer

    def hurry(self) -> None:
        """Let patient calls wait no longer."""
        self._calls.hurry()
        self._plan()

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run ``work(conn)`` in one read-only snapshot that sees every finished `write`.

        Never waits for the write lock.  Raises what ``work`` raises, and as `write` does.
        """
        self._check_open()
        try:
            return await thread.hop(self._reader, partial(in_snapshot, work=work))
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise translate(error, Phase.READ) from error

    async def close(self) -> None:
        """Finish what was asked for, then close.  Idempotent; bounded by the busy timeout."""
        if self._closed is None:
            self._check_process()
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

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise SupervisorError(
                ErrorCode.FORKED_COPY,
                "this journal was opened before a fork; the copy must not use it",
                phase=Phase.OPEN,
                hint="open a supervisor of its own after the fork",
            )

    def _check_open(self) -> None:
        self._check_process()
        if self._closing:
            raise _closed_error()

    def _plan(self) -> None:
        """Have what waits done: in the next turn of the loop, so that all callers of this one share it."""
        if self._busy:
            return  # the end of that batch asks again
        if self._calls.press or self._closing:
            self._begin_soon()
        elif self._later is None and (ends := self._calls.patience_ends) is not None:
            self._later = self._loop.call_at(ends, self._begin)

    def _begin_soon(self) -> None:
        self._busy = True
        if self._later is not None:  # it may be due in this very turn: then two batches would begin
            self._later.cancel()
            self._later = None
        self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._later = None
        batch = self._calls.take(self._loop.time())
        self._busy = bool(batch)
        if batch:
            works, durable = [call.work for call in batch], any(call.durable for call in batch)
            work = partial(self._batches.run, works=works, durable=durable)
            thread.submit(self._writer, work, self._loop, partial(self._done, batch))
        elif self._closing:
            self._at_rest.set()

    def _done(self, batch: list[Call], results: list[Done | Failed] | BaseException) -> None:
        if isinstance(results, BaseException):
            self._failed(batch, results)
        else:
            self.commits += 1
            self.bell.ring()
            self.committed_calls += len(batch)
            for call, result in zip(batch, results, strict=True):
                if isinstance(result, Done):
                    _answer(call, value=result.value)
                else:
                    _answer(call, error=_typed(result))
            self._checkpoints.committed(len(batch))
            if self._calls.enough:  # a lull is likely now: who was just answered has something to do first
                self._later = self._loop.call_later(LULL_SECONDS, self._begin)
        self._busy = False
        self._plan()

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
                _answer(call, error=typed)
        self._calls.put_back(again)


async def _connect(database: str, *, uri: bool) -> aiosqlite.Connection:
    try:
        return await thread.connect(database, uri=uri)
    except sqlite3.Error as error:
        raise translate(error, Phase.OPEN) from error


async def _patiently(
    connection: aiosqlite.Connection, work: Callable[[sqlite3.Connection], T], seconds: float
) -> T:
    deadline = time.monotonic() + seconds
    while True:
        try:
            return await thread.hop(connection, work)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            if not is_busy(error) or time.monotonic() >= deadline:
                raise translate(error, Phase.OPEN) from error
            await asyncio.sleep(0.02)  # switching to WAL answers "busy" without having waited


def _configure(conn: sqlite3.Connection) -> None:
    # EXTRA: the rollback file of the switch to WAL must not come back after a power loss.
    conn.execute("PRAGMA synchronous = EXTRA")
    conn.execute("PRAGMA recursive_triggers = ON")  # else INSERT OR REPLACE would go round the guards
    conn.execute("PRAGMA trusted_schema = OFF")
    mode = conn.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise SupervisorError(
            ErrorCode.STATE_DIR_REFUSED,
            "this file system cannot hold a SQLite write-ahead log",
            phase=Phase.OPEN,
            hint="choose a state directory on a local disk",
        )
    conn.execute(SQL_LAST_RESORT)
    conn.execute("PRAGMA journal_size_limit = 16777216")  # a burst leaves no giant -wal behind


def _check_sqlite() -> None:
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise SupervisorError(
            ErrorCode.UNSUPPORTED_PLATFORM,
            f"this Python has SQLite {sqlite3.sqlite_version}; 3.37 or newer is needed",
            phase=Phase.OPEN,
            hint="use a newer Python or operating system",
        )


def _closed_error() -> SupervisorError:
    return SupervisorError(
        ErrorCode.SUPERVISOR_CLOSED,
        "the journal is closed",
        hint="open the supervisor again; work already under way may have been applied whole",
    )


def _typed(result: Failed) -> BaseException:
    error = result.error
    if isinstance(error, StopIteration):  # a future refuses to carry one
        return RuntimeError("the work raised StopIteration")
    if isinstance(error, sqlite3.Error) and not isinstance(error, sqlite3.IntegrityError):
        typed = translate(error, Phase.RUN)
        typed.__cause__ = error
        return typed
    return error


def _answer(call: Call, *, value: object = None, error: BaseException | None = None) -> None:
    if call.answer.done():
        return
    if error is None:
        call.answer.set_result(value)
    else:
        call.answer.set_exception(error)
