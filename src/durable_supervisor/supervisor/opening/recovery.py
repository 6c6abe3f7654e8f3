"""``recover``: make the journal anew from the run logs, keeping the old file aside."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from functools import partial

from ...journal import copying, meta
from ...journal.collecting import rebuild_collected
from ...journal.connection import Journal
from ...journal.recover import Conflict
from ...model.errors import ErrorCode, SupervisorError
from ...model.ids import new_id
from ...process.failpoints import failpoint
from ...runlog.collected import CollectedLog
from ...runlog.paths import RunPaths, list_runs, list_shards
from ...runlog.reader import LogReader
from ..admission.admission import key_id
from ..gc.collected import read as read_tombstones
from ..state import state_dir as directory
from ..state.state_dir import Ownership, StateDir
from . import copied
from .opening import refusing_unreadable
from .rebuild import scan, without_header

_UNUSABLE = (ErrorCode.JOURNAL_CORRUPT, ErrorCode.JOURNAL_MISSING)


async def recover(place: StateDir, wait: float) -> dict[str, object]:
    """Rows for every log; then the next open judges them.  Idempotent; nothing is executed."""
    directory.check(place)
    directory.create(place)
    ownership = await Ownership.take(place, wait)
    try:
        with refusing_unreadable(place):
            return await _recover(place)
    finally:
        ownership.release()


async def _recover(place: StateDir) -> dict[str, object]:
    aside = await _set_unusable_aside(place)
    failpoint("recover.set_aside")
    journal = await Journal.open(place.journal)
    try:
        report = await _rebuild(place, journal)
    finally:
        await journal.close()
    return {**report, "old_journal": aside}


async def _rebuild(place: StateDir, journal: Journal) -> dict[str, object]:
    key = directory.load_key(place, create=True)
    directory_id = _directory_of_logs(place) or new_id("dir", os.urandom)
    now = time.time_ns()
    found = await asyncio.to_thread(lambda: list(scan(place.runs, with_unaccepted=True)))
    lines = await asyncio.to_thread(lambda: list(read_tombstones(CollectedLog(place.runs))))
    whole = [(mark, stone) for mark, stone in lines if stone is not None]
    stones, mark = [stone for _, stone in whole], whole[-1][0] if whole else None
    await journal.write(lambda conn: meta.adopt(conn, directory_id, key_id(key)))
    failpoint("recover.adopted")
    report = await journal.write(lambda conn: rebuild_collected(conn, found, stones, mark, now))
    await _remember_copy(place, journal)
    failpoint("recover.rebuilt")
    told = {*report.added, *report.advanced, *report.kept, *(one.run_id for one in report.conflicts)}
    lost = await asyncio.to_thread(lambda: list(without_header(place.runs, told)))
    report.conflicts += [Conflict(run_id, "header_damaged") for run_id in lost]
    return {
        "added": report.added,
        "advanced": report.advanced,
        "kept": report.kept,
        "conflicts": [
            {"run_id": one.run_id, "problem": one.problem, "other_run_id": one.other_run_id}
            for one in report.conflicts
        ],
        "damaged_tombstones": len(lines) - len(whole),
    }


async def _remember_copy(place: StateDir, journal: Journal) -> None:
    """The new journal of a copy must say so too: what lives of the runs that were copied is not its own."""
    mark = await asyncio.to_thread(partial(copied.mark_beside, place.path))
    if mark is not None:
        await journal.write(partial(copying.remember_copy, mark=mark))
        await journal.write(partial(copying.forbid_retries, through=mark.through))


async def _set_unusable_aside(place: StateDir) -> str | None:
    """A journal that cannot be read, or is of another directory, is kept under another name."""
    try:
        journal = await Journal.open(place.journal, create=False)
    except SupervisorError as error:
        if error.code not in _UNUSABLE:
            raise
        return _move_aside(place)
    known = await journal.read(meta.directory_id)
    await journal.close()
    of_logs = _directory_of_logs(place)
    return _move_aside(place) if known and of_logs and known != of_logs else None


def _move_aside(place: StateDir) -> str | None:
    aside = f"{place.journal}.{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}.old"
    moved = None
    for suffix in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            os.rename(place.journal + suffix, aside + suffix)
            moved = aside
    return moved


def _directory_of_logs(place: StateDir) -> str | None:
    """The directory id that the newest readable log header carries, else the newest tombstone."""
    for shard in reversed(list_shards(place.runs)):
        for run_id, attempt in list_runs(place.runs, shard).items():
            header = LogReader(RunPaths(place.runs, shard, run_id), attempt).evidence().header
            if header is not None:
                return header.directory_id
    told = [stone for _, stone in read_tombstones(CollectedLog(place.runs)) if stone is not None]
    return told[-1].directory_id if told else None
