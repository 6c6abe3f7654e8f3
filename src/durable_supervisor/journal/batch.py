"""Many callers' work in one transaction: one fsync for all, and each harms only itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

Work = Callable[[sqlite3.Connection], Any]

_SYNCHRONOUS = {"FULL": "PRAGMA synchronous = FULL", "NORMAL": "PRAGMA synchronous = NORMAL"}


class Done(NamedTuple):
    """What one caller's work returned."""

    value: Any


class Failed(NamedTuple):
    """What one caller's work raised; it left nothing in the journal."""

    error: Exception


class TransactionLostError(Exception):
    """One piece of work took the whole transaction with it (as SQLite does when a disk is full)."""


class _WorkFailedError(Exception):
    """One piece of work failed in a transaction without savepoints; nothing of it is written."""


class Batches:
    """Runs batches of work on one connection, in its thread."""

    def __init__(self) -> None:
        self._synchronous = ""  # as the connection was told last

    def run(self, conn: sqlite3.Connection, works: Sequence[Work], durable: bool) -> list[Done | Failed]:
        """Run all works in one transaction, so that each harms only itself.

        Durable: the commit is on disk when this returns (WAL, synchronous FULL); else a
        power loss may take it back, whole and in order.  As a rule no work fails, so savepoints
        are made only for a second try.  Where one work costs all their transaction, each is run again in one
        of its own.  So a work must have no effect outside the connection.  Raises sqlite3.Error (BUSY
        included) with nothing written.
        """
        self._sync(conn, "FULL" if durable else "NORMAL")
        try:
            return _commit(conn, works, _plainly)
        except _WorkFailedError:
            pass
        try:
            return _commit(conn, works, _in_savepoint)
        except TransactionLostError:
            if len(works) == 1:
                raise
        return [_alone(conn, work) for work in works]

    def _sync(self, conn: sqlite3.Connection, synchronous: str) -> None:
        # Not allowed inside a transaction, so it comes before BEGIN.
        if synchronous != self._synchronous:
            conn.execute(_SYNCHRONOUS[synchronous])
            self._synchronous = synchronous


def _alone(conn: sqlite3.Connection, work: Work) -> Done | Failed:
    try:
        return _commit(conn, [work], _in_savepoint)[0]
    except TransactionLostError as lost:
        cause = lost.__cause__
        return Failed(cause if isinstance(cause, Exception) else lost)
    except sqlite3.Error as error:
        return Failed(error)


def _commit(
    conn: sqlite3.Connection, works: Sequence[Work], run: Callable[[sqlite3.Connection, Work], Done | Failed]
) -> list[Done | Failed]:
    conn.execute("BEGIN IMMEDIATE")
    try:
        results = [run(conn, work) for work in works]
        conn.execute("COMMIT")
        return results
    finally:
        if conn.in_transaction:
            conn.execute("ROLLBACK")


def _plainly(conn: sqlite3.Connection, work: Work) -> Done:
    try:
        value = work(conn)
    except Exception as error:  # whose it is, the second try finds out
        raise _WorkFailedError from error
    if not conn.in_transaction:
        raise _WorkFailedError
    return Done(value)


def _in_savepoint(conn: sqlite3.Connection, work: Work) -> Done | Failed:
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
    return Done(value) if failure is None else Failed(failure)
