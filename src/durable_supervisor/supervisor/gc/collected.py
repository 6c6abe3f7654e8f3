"""``collected.log`` held against the journal, when a directory is opened and when one is recovered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from ...journal import collecting, meta, runs
from ...journal.access import JournalAccess
from ...journal.tombstones import Tombstone
from ...model.errors import ErrorCode, SupervisorError
from ...process.failpoints import failpoint
from ...runlog.collected import CollectedLog, Mark
from ..admission.refusals import needs_recovery
from ..state.state_dir import StateDir
from .collector import BATCH

if TYPE_CHECKING:
    import sqlite3


def read(log: CollectedLog, after: Mark | None = None) -> Iterator[tuple[str, Tombstone | None]]:
    """Each line behind a mark: its own mark, and what it says; None for one that is damaged."""
    for line in log.lines(after):
        try:
            stone = None if line.document is None else Tombstone.from_dict(line.document)
        except (KeyError, TypeError, ValueError):
            stone = None  # of a later format, say
        yield str(line.mark), stone


async def compare_with_tombstones(place: StateDir, journal: JournalAccess, directory_id: str) -> None:
    """Every tombstone must be of a run that the journal knows so, or it is older than its logs.

    Costs nothing where the file ends as the journal remembers.  What an owner left half done is
    finished: tombstones that are not in the journal yet, and rows that are not in the file any more.

    Raises ``JOURNAL_BEHIND``, ``JOURNAL_MISMATCH``; OSError, `NotRegularError`.
    """
    log = CollectedLog(place.runs)
    mark = Mark.parse(await journal.read(partial(meta.get, key=meta.COLLECTED_LOG)))
    if log.is_at(mark):
        return
    for chunk in _chunks(read(log, mark)):
        await journal.read(partial(_check, stones=[stone for _, stone in chunk], directory_id=directory_id))
    for chunk in _chunks(read(log, mark)):
        whole = [(at, stone) for at, stone in chunk if stone is not None]
        if whole:
            stones, last = [stone for _, stone in whole], whole[-1][0]
            await journal.write(partial(collecting.collect, stones=stones, mark=last))
            failpoint("open.collected")
    if not log.has(mark):
        await _write_again(log, journal, directory_id)


def _check(conn: sqlite3.Connection, stones: Iterable[Tombstone | None], directory_id: str) -> None:
    for stone in stones:
        if stone is None:
            continue
        if stone.directory_id != directory_id:
            raise _mismatch()
        if not stone.explains(runs.get(conn, stone.run.run_id)):
            raise _behind(stone.run.run_id)


async def _write_again(log: CollectedLog, journal: JournalAccess, directory_id: str) -> None:
    """The file was lost, or put back from a copy: what the journal has of it is added."""
    told = {stone.run.run_id for _, stone in read(log) if stone is not None}
    serial = 0
    while True:
        page: Sequence[Tombstone] = await journal.read(
            partial(collecting.collected_runs, directory_id=directory_id, after_serial=serial, limit=BATCH)
        )
        if not page:
            return
        serial = page[-1].run.serial
        lacking = [stone.to_dict() for stone in page if stone.run.run_id not in told]
        if lacking:
            mark = str(log.append(lacking))
            await journal.write(partial(meta.put, key=meta.COLLECTED_LOG, value=mark))


def _chunks(
    lines: Iterator[tuple[str, Tombstone | None]],
) -> Iterator[list[tuple[str, Tombstone | None]]]:
    while chunk := list(islice(lines, BATCH)):
        yield chunk


def _mismatch() -> SupervisorError:
    return needs_recovery(
        ErrorCode.JOURNAL_MISMATCH, "the journal belongs to another state directory than collected.log"
    )


def _behind(run_id: str) -> SupervisorError:
    return needs_recovery(
        ErrorCode.JOURNAL_BEHIND,
        f"the journal is older than its logs: run {run_id} was over, and collected",
    )
