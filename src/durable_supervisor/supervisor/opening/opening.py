"""What must hold before a supervisor may admit anything."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ...journal import listing, meta
from ...model.errors import ErrorCode, Phase, SupervisorError
from ...model.ids import new_id
from ...model.platform import check_platform
from ...process.failpoints import failpoint
from ...process.locks import LockState, probe_lock
from ...process.shortage import are_descriptors_short, is_shortage
from ...runlog.collected import CollectedLog, Mark
from ...runlog.evidence import UNACCEPTED, read_evidence
from ...runlog.files import NotRegularError, fsync_dir
from ...runlog.paths import SHARD_RUNS, RunPaths, has_runs, list_runs, list_shards, shard_of
from ..admission.admission import key_id
from ..admission.host import check_proc, short_of
from ..admission.refusals import RECOVER_HINT, needs_recovery
from ..state import state_dir as directory
from ..state.file_errors import not_regular
from ..state.state_dir import Ownership, StateDir, load_key, unusable

if TYPE_CHECKING:
    from ...journal.access import JournalAccess

J = TypeVar("J", bound="JournalAccess")
OpenJournal = Callable[[str, bool], Awaitable[J]]  # of this path; made if there is none, or not

_SQLITE_FILES = 8  # of its two connections: the journal, -wal, -shm, and the directory to sync


class Identity:
    """The directory's id and key, which every log header and digest refers to, and the serials to come.

    ``first_serial`` is the journal's; ``serials`` begin behind those of imported runs, too.
    ``has_collected``: are there runs whose logs were collected?
    """

    __slots__ = ("directory_id", "first_serial", "has_collected", "key", "key_id", "serials")

    def __init__(self, directory_id: str, key: bytes, first_serial: int, first_free: int = 1) -> None:
        self.has_collected = False
        self.first_serial = first_serial
        self.serials = itertools.count(max(first_serial, first_free))
        self.directory_id = directory_id
        self.key = key
        self.key_id = key_id(key)


async def own(
    place: StateDir,
    wait: float,
    undo: AsyncExitStack,
    open_: OpenJournal[J],
    take: Callable[[StateDir, float], Awaitable[Ownership]] = Ownership.take,
) -> tuple[Ownership, J, Identity]:
    """Take the directory, made where it is missing, and its journal; ``undo`` lets go of both.

    Raises what ``take`` and `open_journal` do, and ``STATE_DIR_REFUSED``.
    """
    check_platform()
    directory.check(place)
    directory.create(place)
    directory.check(place)
    ownership = await take(place, wait)
    undo.callback(ownership.release)
    failpoint("open.owned")
    journal, identity = await open_journal(place, open_)
    undo.push_async_callback(journal.close)
    return ownership, journal, identity


async def open_journal(place: StateDir, open_: OpenJournal[J]) -> tuple[J, Identity]:
    """The journal, proven to be this directory's and not older than its logs.

    Raises ``JOURNAL_MISSING``, ``JOURNAL_BEHIND``, ``JOURNAL_MISMATCH``, ``JOURNAL_NEWER``,
    ``JOURNAL_CORRUPT``: reading works all the same, starting must wait for `recover`.
    ``STATE_DIR_REFUSED`` where a folder of logs cannot be looked into, ``UNSUPPORTED_PLATFORM`` without
    a /proc of our own.
    """
    check_proc()
    with refusing_unreadable(place):
        return await _open_journal(place, open_)


async def _open_journal(place: StateDir, open_: OpenJournal[J]) -> tuple[J, Identity]:
    fsync_dir(place.runs)  # a shard that an owner made just before it was killed
    fresh = _is_empty(place.journal)
    if fresh and (has_logs(place) or not CollectedLog(place.runs).is_at(None)):
        raise needs_recovery(
            ErrorCode.JOURNAL_MISSING,
            "the journal is missing, but there are, or were, run logs: starting could run a request twice",
        )
    journal = await open_(place.journal, fresh)
    try:
        return journal, await _identify(place, journal)
    except BaseException:
        await journal.close()
        raise


@contextmanager
def refusing_unreadable(place: StateDir) -> Iterator[None]:
    """A folder of logs that cannot be looked into may hold any request id: typed as ``STATE_DIR_REFUSED``.

    ``BUSY`` where only descriptors are short; of SQLite's files, too, which does not say why it opened none.
    """
    try:
        yield
    except SupervisorError as error:
        if error.details.get("sqlite") != "SQLITE_CANTOPEN" or not are_descriptors_short(_SQLITE_FILES):
            raise
        raise short_of(OSError(errno.EMFILE, os.strerror(errno.EMFILE)), Phase.OPEN) from error
    except OSError as error:
        if is_shortage(error):
            raise short_of(error, Phase.OPEN) from error
        if error.errno not in (errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.ELOOP, errno.EIO):
            raise
        raise unusable(os.fsdecode(error.filename or place.runs), error) from error
    except NotRegularError as error:
        raise not_regular(error) from error


async def _identify(place: StateDir, journal: JournalAccess) -> Identity:
    known = await journal.read(meta.directory_id)
    key = load_key(place, create=known is None)
    first_serial = await journal.read(meta.next_serial)
    first_free = _first_free_of(place.imported)
    identity = Identity(known or new_id("dir", os.urandom), key, first_serial, first_free)
    failpoint("open.key_loaded")
    if known is None:
        await journal.write(lambda conn: meta.adopt(conn, identity.directory_id, identity.key_id))
    failpoint("open.adopted")
    await _compare_with_logs(place, journal, identity)
    await _compare_with_tombstones(place, journal, identity)
    return identity


def _first_free_of(imported: str) -> int:
    if not os.path.lexists(imported):
        return 1
    from ..imports.imported import next_serial  # most directories have none

    return next_serial(imported)


async def _compare_with_tombstones(place: StateDir, journal: JournalAccess, identity: Identity) -> None:
    """Costs next to nothing where ``collected.log`` ends as the journal remembers.

    Raises ``JOURNAL_BEHIND``, ``JOURNAL_MISMATCH``.
    """
    known = Mark.parse(await journal.read(partial(meta.get, key=meta.COLLECTED_LOG)))
    identity.has_collected = known is not None
    if not CollectedLog(place.runs).is_at(known):
        from ..gc.collected import (
            compare_with_tombstones,  # with all that collects: most directories never did
        )

        identity.has_collected = True
        await compare_with_tombstones(place, journal, identity.directory_id)


async def _compare_with_logs(place: StateDir, journal: JournalAccess, identity: Identity) -> None:
    """Every log of the newest shards must have a row: looks at no more than a shard's worth."""
    base = shard_of(identity.first_serial - 1)
    rows = await journal.read(lambda conn: listing.attempts_since(conn, _first_serial(base)))
    copied = await journal.read(partial(meta.get, key=meta.COPIED))
    original = None if copied is None else _original(copied)
    for shard in list_shards(place.runs, since=base):
        for run_id, attempt in list_runs(place.runs, shard).items():
            if rows.get(run_id, 0) < attempt:
                paths = RunPaths(place.runs, shard, run_id)
                if judge_stranger(paths, attempt, identity):
                    await journal.write(meta.overwrite_unannounced)  # or its row might come yet
                    sweep(paths, attempt)
            elif original is not None:
                _check_not_of(original, RunPaths(place.runs, shard, run_id), attempt)


def judge_stranger(paths: RunPaths, attempt: int, identity: Identity) -> bool:
    """A log without a row: never accepted (True: `sweep` it), or accepted by a journal that is not this one.

    Raises ``JOURNAL_MISMATCH``, ``JOURNAL_BEHIND``.
    """
    evidence = read_evidence(paths, attempt)
    lock = probe_lock(paths.log(attempt))
    header = evidence.header
    if header is not None and header.directory_id != identity.directory_id:
        raise needs_recovery(
            ErrorCode.JOURNAL_MISMATCH, "the journal belongs to another state directory than the run logs"
        )
    if evidence.has_records or lock is LockState.HELD:
        if header is None:
            raise _nobodys(paths, attempt)
        raise needs_recovery(
            ErrorCode.JOURNAL_BEHIND,
            f"the journal is older than its logs: it does not know run {paths.run_id}, attempt {attempt}",
        )
    return lock is LockState.FREE and evidence.status in UNACCEPTED


def sweep(paths: RunPaths, attempt: int) -> None:
    """Remove a log that no intent followed."""
    with suppress(OSError):
        os.unlink(paths.log(attempt))
    failpoint("open.swept")


def _original(mark: str) -> str:
    from ...journal.copying import CopyMark  # for the journal of a backup alone

    return CopyMark.decode(mark).original


def _check_not_of(original: str, paths: RunPaths, attempt: int) -> None:
    """The journal of a backup, put beside the logs of the original, would call runs unknown that go on.

    Raises ``JOURNAL_MISMATCH``.
    """
    header = read_evidence(paths, attempt).header
    if header is not None and header.directory_id == original:
        raise needs_recovery(
            ErrorCode.JOURNAL_MISMATCH, "the journal is a backup's, the run logs are the original's"
        )


def check_in_place(place: StateDir, inode: int) -> None:
    """Is the journal the file that was opened?  Another's, or deleted, its intents would be found by nobody.

    Raises ``JOURNAL_MISMATCH``, ``JOURNAL_MISSING``; ``STATE_DIR_REFUSED`` where it cannot be seen.
    """
    try:
        if os.lstat(place.journal).st_ino == inode:
            return
        code, what = ErrorCode.JOURNAL_MISMATCH, "another file has taken the journal's place"
    except FileNotFoundError:
        code, what = ErrorCode.JOURNAL_MISSING, "the journal has been deleted"
    except OSError as error:
        raise unusable(place.journal, error) from error
    raise SupervisorError(code, what, phase=Phase.ADMIT, hint=f"close this supervisor, then {RECOVER_HINT}")


def has_logs(place: StateDir) -> bool:
    """Is there any run log in the directory?"""
    return any(has_runs(place.runs, shard) for shard in list_shards(place.runs))


def _first_serial(shard: str) -> int:
    return int(shard, 16) * SHARD_RUNS


def _is_empty(path: str) -> bool:
    try:
        return os.lstat(path).st_size == 0
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _nobodys(paths: RunPaths, attempt: int) -> SupervisorError:
    """Its header is gone, and with it the request id: nothing can tell any more which one is spent."""
    return SupervisorError(
        ErrorCode.JOURNAL_BEHIND,
        f"no row knows run {paths.run_id}, attempt {attempt}, and the beginning of its log is damaged",
        phase=Phase.OPEN,
        hint="run `durable-supervisor recover`; if that reports it as header_damaged, move its log away: "
        "you alone can say whether its request may run again",
        details={"run_id": paths.run_id, "log": paths.log(attempt)},
    )
