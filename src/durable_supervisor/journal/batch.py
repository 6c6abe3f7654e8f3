"""Many callers' work in one transaction: one fsync for all, and each harms only itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from ..model.errors import Phase
from ..model.named_tuple import NamedTuple
from .errors import translate

Work = Callable[[sqlite3.Connection], Any]
Runner = Callable[[sqlite3.Connection, Sequence[Work]], "list[Any | Failed]"]

_SYNCHRONOUS = {"FULL": "PRAGMA synchronous = FULL", "NORMAL": "PRAGMA synchronous = NORMAL"}


class Failed(NamedTuple):
    """What one caller's work raised; it left nothing in the journal."""

    error: Exception

    def typed(self) -> BaseException:
        """As its caller is to get it."""
        error = self.error
        if isinstance(error, StopIteration):  # a future refuses to carry one
            return RuntimeError("the work raised StopIteration")
        if isinstance(error, sqlite3.Error) and not isinstance(error, sqlite3.IntegrityError):
            typed = translate(error, Phase.RUN)
            typed.__cause__ = error
            return typed
        return error


class TransactionLostError(Exception):
    """One piece of work took the whole transaction with it (as SQLite does when a disk is full)."""


class _WorkFailedError(Exception):
    """One piece of work failed in a transaction without savepoints; nothing of it is written."""


class Batches:
    """Runs batches of work on one connection, in its thread."""

    def __init__(self) -> None:
        self._synchronous = ""  # as the connection was told last

    def run(self, conn: sqlite3.Connection, works: Sequence[Work], durable: bool) -> list[Any | Failed]:
        """What each work returned, or `Failed`.  All run in one transaction, and each harms only itself.

        Durable: the commit is on disk when this returns (WAL, synchronous FULL); else a
        power loss may take it back, whole and in order.  As a rule no work fails, so savepoints
        are made only for a second try.  Where one work costs all their transaction, each is run again in one
        of its own.  So a work must have no effect outside the connection.  Raises sqlite3.Error (BUSY
        included) with nothing written.
        """
        synchronous = "FULL" if durable else "NORMAL"
        if synchronous != self._synchronous:
            self._sync(conn, synchronous)
        results = None
        with suppress(_WorkFailedError):
            results = _commit(conn, works, _plainly)
        if results is None:  # not while that is handled: it would be the context of what fails now
            results = _try_again(conn, works)
        if not durable:
            # Now, since nobody waits for this: a start would wait for it 40 µs where caches are cold.
            with suppress(sqlite3.Error):  # that start then tries again, and is told
                self._sync(conn, "FULL")
        return results

    def _sync(self, conn: sqlite3.Connection, synchronous: str) -> None:
        """Not allowed inside a transaction."""
        conn.execute(_SYNCHRONOUS[synchronous])
        self._synchronous = synchronous


def _try_again(conn: sqlite3.Connection, works: Sequence[Work]) -> list[Any | Failed]:
    try:
        return _commit(conn, works, _in_savepoints)
    except TransactionLostError:
        if len(works) == 1:
            raise
    return [_alone(conn, work) for work in works]


def _alone(conn: sqlite3.Connection, work: Work) -> Any | Failed:
    try:
        return _commit(conn, [work], _in_savepoints)[0]
    except TransactionLostError as lost:
        cause = lost.__cause__
        return Failed(cause if isinstance(cause, Exception) else lost)
    except sqlite3.Error as error:
        return Failed(error)


def _commit(conn: sqlite3.Connection, works: Sequence[Work], run: Runner) -> list[Any | Failed]:
    conn.execute("BEGIN IMMEDIATE")
    try:
        results = run(conn, works)
        conn.execute("COMMIT")
        return results
    finally:
        if conn.in_transaction:
            conn.execute("ROLLBACK")


def _plainly(conn: sqlite3.Connection, works: Sequence[Work]) -> list[Any | Failed]:
    results = []
    for work in works:
        try:
            results.append(work(conn))
        except Exception as error:  # whose it is, the second try finds out
            raise _WorkFailedError from error
        if not conn.in_transaction:
            raise _WorkFailedError
    return results


def _in_savepoints(conn: sqlite3.Connection, works: Sequence[Work]) -> list[Any | Failed]:
    return [_in_savepoint(conn, work) for work in works]


def _in_savepoint(conn: sqlite3.Connection, work: Work) -> Any | Failed:
    conn.execute("SAVEPOINT work")
    failure: Exception | None = None
    value = None
    try:
        value = work(conn)
    except Exception as error:  # noqa: BLE001  # it is its caller's, who gets it
        failure = error
    if not conn.in_transaction:
        raise TransactionLostError("the transaction ended inside a piece of work") from failure
    if failure is not None:
        conn.execute("ROLLBACK TO work")
    conn.execute("RELEASE work")
    return value if failure is None else Failed(failure)
