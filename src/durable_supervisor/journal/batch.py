"""Many callers' work in one transaction: one fsync for all, a savepoint for each."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Work = Callable[[sqlite3.Connection], Any]


@dataclass(frozen=True, slots=True)
class Done:
    """What one caller's work returned."""

    value: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """What one caller's work raised; it left nothing in the journal."""

    error: Exception


class TransactionLostError(Exception):
    """One piece of work took the whole transaction with it (as SQLite does when a disk is full)."""


def run_batch(conn: sqlite3.Connection, works: Sequence[Work], durable: bool) -> list[Done | Failed]:
    """Run all works in one transaction, each in a savepoint.

    Durable: the commit is on disk when this returns (WAL, synchronous FULL); else a
    power loss may take it back, whole and in order.  Where one work costs all their
    transaction, each is run again in one of its own: a work must have no effect
    outside the connection.  Raises sqlite3.Error (BUSY included) with nothing written.
    """
    try:
        return _commit(conn, works, durable)
    except TransactionLostError:
        if len(works) == 1:
            raise
    return [_alone(conn, work, durable) for work in works]


def _alone(conn: sqlite3.Connection, work: Work, durable: bool) -> Done | Failed:
    try:
        return _commit(conn, [work], durable)[0]
    except TransactionLostError as lost:
        cause = lost.__cause__
        return Failed(cause if isinstance(cause, Exception) else lost)
    except sqlite3.Error as error:
        return Failed(error)


def _commit(conn: sqlite3.Connection, works: Sequence[Work], durable: bool) -> list[Done | Failed]:
    # Not allowed inside a transaction, so it comes before BEGIN.
    conn.execute("PRAGMA synchronous = FULL" if durable else "PRAGMA synchronous = NORMAL")
    conn.execute("BEGIN IMMEDIATE")
    try:
        results = [_in_savepoint(conn, work) for work in works]
        conn.execute("COMMIT")
        return results
    finally:
        if conn.in_transaction:
            conn.execute("ROLLBACK")


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
