"""SQLite's errors as the product's, and what a guard says."""

from __future__ import annotations

import sqlite3

from ..model.errors import ErrorCode, Phase, SupervisorError
from ..model.states import RunState, Trigger

# Primary result codes (sqlite.org/rescode.html); extended ones keep them in the low byte.
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_REFUSED = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}
# Of a text with a changed byte; it is Python's own error, and has no code.
_UNDECODABLE = "Could not decode to UTF-8"
# A full disk shows as these where SQLite extends its shared-memory file.
_SHM_SPACE = {sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMMAP}

_NOTHING_WRITTEN = frozenset(
    {ErrorCode.BUSY, ErrorCode.NO_SPACE, ErrorCode.JOURNAL_BEHIND, ErrorCode.CAPACITY_EXHAUSTED}
)


class StaleState(SupervisorError):  # noqa: N818  # named for the fact
    """The run was not in the state that the caller had read; nothing was written."""

    def __init__(self, run_id: str, expected: RunState, actual: RunState) -> None:
        super().__init__(
            ErrorCode.INTERNAL,
            f"run {run_id} is {actual.value}, no longer {expected.value}",
            retryable=True,
            hint="read the run again and decide anew",
            details={"run_id": run_id, "expected": expected.value, "actual": actual.value},
        )
        self.run_id = run_id
        self.expected = expected
        self.actual = actual


class TransitionRefused(SupervisorError):  # noqa: N818  # named for the fact
    """The transition table forbids it; nothing was written."""

    def __init__(self, run_id: str, state: RunState, trigger: Trigger) -> None:
        super().__init__(
            ErrorCode.INTERNAL,
            f"run {run_id} is {state.value}: {trigger.value} would rewrite a fact or skip proof",
            details={"run_id": run_id, "state": state.value, "trigger": trigger.value},
        )
        self.run_id = run_id
        self.state = state
        self.trigger = trigger


def primary_code(error: BaseException) -> int:
    """SQLite's primary result code, 0 where the error carries none."""
    code = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF if isinstance(code, int) else 0


def is_busy(error: BaseException) -> bool:
    """Did another process hold the lock longer than the busy timeout?"""
    return isinstance(error, sqlite3.OperationalError) and primary_code(error) in _BUSY


def is_corrupt(error: BaseException) -> bool:
    """Does the file not read as a sound database?"""
    if isinstance(error, UnicodeDecodeError):  # what SQLite complains of is no text itself
        return True
    if isinstance(error, sqlite3.OperationalError) and str(error).startswith(_UNDECODABLE):
        return True
    return isinstance(error, sqlite3.DatabaseError) and primary_code(error) in _CORRUPT


def is_full(error: BaseException) -> bool:
    """Did the disk have no room for what SQLite must write, be it only to read?"""
    return primary_code(error) == sqlite3.SQLITE_FULL or getattr(error, "sqlite_errorcode", 0) in _SHM_SPACE


def wrote_nothing(error: BaseException) -> bool:
    """Does this refusal of a write (in its typed form) prove that nothing of it will ever be found?

    Not where the -shm file cannot grow: that is tried behind a commit's last frame, and whoever opens the
    journal after everybody has left finds those frames whole, unless a later write has taken their place.
    """
    if not isinstance(error, SupervisorError) or error.code not in _NOTHING_WRITTEN:
        return False
    return not str(error.details.get("sqlite", "")).startswith("SQLITE_IOERR")


def is_io_error(error: BaseException) -> bool:
    """Did the disk fail a call of SQLite's?  What was being written may have reached it, or not."""
    short_of_memory = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_IOERR_NOMEM
    return primary_code(error) == sqlite3.SQLITE_IOERR and not short_of_memory


def is_half_made(error: BaseException) -> bool:
    """Was its maker cut off, so that the next to write must first roll that back?

    A journal has such a rollback file only until it becomes a write-ahead log, before anything is in it.
    """
    return getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_READONLY_ROLLBACK


def lacks_room(error: BaseException) -> bool:
    """May it be that a file which SQLite needs beside the journal cannot be made, since the disk is full?"""
    return is_full(error) or primary_code(error) == sqlite3.SQLITE_CANTOPEN


def translate(error: BaseException, phase: Phase) -> SupervisorError:
    """The typed form of an error met in the journal (set it with ``raise … from error``)."""
    if isinstance(error, SupervisorError):
        return error
    details: dict[str, object] = {"sqlite": getattr(error, "sqlite_errorname", type(error).__name__)}
    if is_busy(error):
        return busy(phase)
    if is_corrupt(error):
        return corrupt(f"the journal cannot be read: {error}", phase, details)
    if is_full(error):
        return _no_space(phase, details)
    if is_io_error(error):
        return _disk_failed(error, phase, details)
    if primary_code(error) in _REFUSED:
        return _refused(error, phase, details)
    return SupervisorError(
        ErrorCode.INTERNAL,
        f"the journal failed: {error}",
        phase=phase,
        hint="run `durable-supervisor doctor`",
        details=details,
    )


def _no_space(phase: Phase, details: dict[str, object]) -> SupervisorError:
    return SupervisorError(
        ErrorCode.NO_SPACE,
        "no space left for the journal; the call has not taken effect",
        phase=phase,
        retryable=True,
        hint="free some space on the file system of the state directory",
        details=details,
    )


def _disk_failed(error: BaseException, phase: Phase, details: dict[str, object]) -> SupervisorError:
    return SupervisorError(
        ErrorCode.JOURNAL_IO,
        f"the disk failed the journal: {error}",
        phase=phase,
        retryable=True,
        hint="look at the disk (dmesg); once it answers again, send the same call again",
        details=details,
    )


def _refused(error: BaseException, phase: Phase, details: dict[str, object]) -> SupervisorError:
    return SupervisorError(
        ErrorCode.STATE_DIR_REFUSED,
        f"the journal cannot be opened or written: {error}",
        phase=phase,
        hint="check owner, mode and mount of the state directory, and that its path is under 500 bytes",
        details=details,
    )


def busy(phase: Phase) -> SupervisorError:
    """Another process kept the write lock; nothing was written and nothing was lost."""
    return SupervisorError(
        ErrorCode.BUSY,
        "another process holds the journal's write lock; nothing was written",
        phase=phase,
        retryable=True,
        hint="close other programs that have journal.db open, and send the call again",
    )


def corrupt(message: str, phase: Phase, details: dict[str, object] | None = None) -> SupervisorError:
    """The journal is not, or no longer, a journal."""
    return SupervisorError(
        ErrorCode.JOURNAL_CORRUPT,
        message,
        phase=phase,
        hint="move journal.db aside and run `durable-supervisor recover`: the run logs still hold every run",
        details=details,
    )


def missing(phase: Phase) -> SupervisorError:
    """There is no journal, or one that was never set up."""
    return SupervisorError(
        ErrorCode.JOURNAL_MISSING,
        "there is no journal in this state directory",
        phase=phase,
        hint="check --state-dir; if runs/ holds logs, `durable-supervisor recover` rebuilds the journal",
    )
