"""Each of SQLite's ways to fail has one typed form."""

from __future__ import annotations

import pickle
import sqlite3

import pytest

from durable_supervisor.journal.errors import StaleState, TransitionRefused, translate, wrote_nothing
from durable_supervisor.model.errors import ErrorCode, Phase, SupervisorError
from durable_supervisor.model.states import RunState, Trigger


@pytest.mark.parametrize(
    ("kind", "code", "expected"),
    [
        (sqlite3.OperationalError, sqlite3.SQLITE_BUSY, ErrorCode.BUSY),
        (sqlite3.OperationalError, sqlite3.SQLITE_BUSY_SNAPSHOT, ErrorCode.BUSY),
        (sqlite3.OperationalError, sqlite3.SQLITE_LOCKED, ErrorCode.BUSY),
        (sqlite3.DatabaseError, sqlite3.SQLITE_CORRUPT, ErrorCode.JOURNAL_CORRUPT),
        (sqlite3.DatabaseError, sqlite3.SQLITE_CORRUPT_INDEX, ErrorCode.JOURNAL_CORRUPT),
        (sqlite3.DatabaseError, sqlite3.SQLITE_NOTADB, ErrorCode.JOURNAL_CORRUPT),
        (sqlite3.OperationalError, sqlite3.SQLITE_FULL, ErrorCode.NO_SPACE),
        (sqlite3.OperationalError, sqlite3.SQLITE_IOERR_SHMSIZE, ErrorCode.NO_SPACE),
        (sqlite3.OperationalError, sqlite3.SQLITE_READONLY, ErrorCode.STATE_DIR_REFUSED),
        (sqlite3.OperationalError, sqlite3.SQLITE_CANTOPEN, ErrorCode.STATE_DIR_REFUSED),
        (sqlite3.OperationalError, sqlite3.SQLITE_IOERR_FSYNC, ErrorCode.JOURNAL_IO),
        (sqlite3.OperationalError, sqlite3.SQLITE_IOERR, ErrorCode.JOURNAL_IO),
        (sqlite3.OperationalError, sqlite3.SQLITE_IOERR_NOMEM, ErrorCode.INTERNAL),
        (sqlite3.OperationalError, sqlite3.SQLITE_ERROR, ErrorCode.INTERNAL),
    ],
)
def test_codes(kind: type[sqlite3.Error], code: int, expected: ErrorCode) -> None:
    error = kind("text")
    error.sqlite_errorcode = code
    typed = translate(error, Phase.READ)
    assert (typed.code, typed.phase) == (expected, Phase.READ)
    assert typed.hint
    assert typed.retryable == (expected in (ErrorCode.BUSY, ErrorCode.NO_SPACE, ErrorCode.JOURNAL_IO))


@pytest.mark.parametrize(
    ("code", "proof"),
    [
        (sqlite3.SQLITE_BUSY, True),
        (sqlite3.SQLITE_FULL, True),
        (sqlite3.SQLITE_IOERR_SHMSIZE, False),
        (sqlite3.SQLITE_IOERR_SHMMAP, False),
        (sqlite3.SQLITE_IOERR_FSYNC, False),
        (sqlite3.SQLITE_CORRUPT, False),
        (sqlite3.SQLITE_READONLY, False),
    ],
)
def test_what_proves_that_nothing_was_written(code: int, proof: bool) -> None:
    error = sqlite3.OperationalError("text")
    error.sqlite_errorcode = code
    error.sqlite_errorname = next(name for name in dir(sqlite3) if getattr(sqlite3, name) == code)
    assert wrote_nothing(translate(error, Phase.ADMIT)) is proof
    assert not wrote_nothing(error), "untyped, it proves nothing"


def test_what_is_typed_stays() -> None:
    stale = StaleState("r", RunState.QUEUED, RunState.RUNNING)
    assert translate(stale, Phase.READ) is stale
    refused = TransitionRefused("r", RunState.FINISHED, Trigger.STOP)
    for error in (stale, refused):
        copy = pickle.loads(pickle.dumps(error))
        assert isinstance(copy, SupervisorError)
        assert copy.to_dict() == error.to_dict()
