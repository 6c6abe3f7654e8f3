"""Make a copy of a state directory that is of one moment, beside whoever owns it, or with nobody.

The journal first, in one snapshot; then the logs that this journal knows.  A log is never behind a
journal that was read before it, so the copy knows of no end that its logs do not have.

The copy is a directory of its own, with an id of its own.  It is made under another name, settled,
synced, and only then renamed: at its place there is all of it, or nothing.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from functools import partial

from ..journal import collecting, copying, meta, runs
from ..journal.connection import Journal
from ..journal.reader import JournalReader
from ..journal.rows import RunRow
from ..model.backup import BackupReport
from ..model.errors import ErrorCode, Phase, SupervisorError, invalid
from ..model.ids import new_id
from ..model.progress import Tell, quiet
from ..process.clock import Clock, boot_id
from ..process.failpoints import failpoint
from ..process.open_files import raise_limit
from ..process.shortage import is_shortage
from ..reconcile.observe import Place
from ..runlog.collected import Mark
from ..runlog.files import FULL_ERRNOS, fsync_dir, make_dir
from ..runlog.paths import RunPaths
from ..runlog.tree import files_below, sync_all
from ..supervisor.admission.host import short_of
from ..supervisor.gc.collected import compare_with_tombstones
from ..supervisor.state import state_dir as directory
from ..supervisor.state.state_dir import StateDir
from . import logs, manifest
from .errand import Errand
from .imports import copy_imports
from .settling import settle

_PAGE = 64
_OF_NO_FILE = str(Mark(0, 1, ""))  # what the journal has of `collected.log` is written again


async def backup(
    dest: str | os.PathLike[str],
    *,
    state_dir: str | os.PathLike[str] | None = None,
    tell: Tell = quiet,
) -> BackupReport:
    """Copy a state directory to ``dest``, a new directory.

    ``state_dir``: else ``$DURABLE_SUPERVISOR_STATE_DIR``, else the user's.  Works beside any owner and
    any number of runs, which notice nothing; takes no lock.  ``dest`` is a state directory: what was over
    reads as in the original, what was not is ``unknown`` there (reason ``copied``), and no request id
    that was known is ever executed in it.  A log that cannot be read is left out, and the report says so.

    Raises SupervisorError ``INVALID_REQUEST`` (field ``dest``), ``NO_SPACE``, ``STATE_DIR_REFUSED``,
    ``JOURNAL_MISSING``, ``JOURNAL_NEWER``, ``JOURNAL_CORRUPT``, ``BUSY``.  Then, and when it is cancelled,
    nothing is left of it.
    """
    source = directory.locate(state_dir)
    directory.check(source)
    path = _checked(dest, source)
    raise_limit()  # a long log has many segments, all held open while it is copied
    errand = Errand()
    async with _workshop(path, errand) as copy:
        report = await _Backup(source, copy, path, errand, tell).make()
        failpoint("backup.filled")
        _put_in_place(copy.path, path)
    return report


class _Backup:
    """One backup under way: from ``source`` into ``copy``, which will be at ``path``."""

    def __init__(self, source: StateDir, copy: StateDir, path: str, errand: Errand, tell: Tell) -> None:
        self._source = source
        self._copy = copy
        self._path = path
        self._errand = errand
        self._tell = tell
        self._clock = Clock()
        self._directory_id = new_id("dir", os.urandom)
        self._collected: list[str] = []  # in the original, since its journal was copied
        self._left_out: dict[str, str] = {}

    async def make(self) -> BackupReport:
        """Everything but the name."""
        made_ns = self._clock.wall_ns()
        unused = manifest.is_unused(self._source.path)
        open_journal = JournalReader.open_at_rest if unused else JournalReader.open
        with closing(await self._errand.run(partial(open_journal, self._source.journal))) as reader:
            await self._errand.run(partial(copying.copy_to, reader, self._copy.journal))
            failpoint("backup.journal_copied")
            key = directory.load_key(self._source, create=False)
            await self._errand.run(partial(manifest.write_file, self._copy.key, key))
            async with await Journal.open(self._copy.journal, create=False) as journal:
                mark = await self._adopt(journal, made_ns)
                await self._copy_logs(journal, reader, mark)
                imported = await self._errand.run(self._copy_imports)
                unsettled = await self._settle(journal)
                not_retried = await journal.write(partial(copying.forbid_retries, through=mark.through))
                await self._note_collected(journal)
                kept, collected = await journal.read(copying.counts)
        # Closed: all of the journal is in its one file now, which nobody has open.
        files = await self._sync()
        report = BackupReport(
            path=self._path,
            directory_id=self._directory_id,
            original=mark.original,
            made_ns=made_ns,
            runs=kept,
            collected=collected,
            imported=imported,
            unsettled=unsettled,
            not_retried=not_retried,
            left_out=self._left_out,
            files=len(files),
            bytes=sum(one.size for one in files.values()),
        )
        await self._errand.run(partial(manifest.write, self._copy.path, report, mark, files))
        return report

    async def _adopt(self, journal: Journal, made_ns: int) -> copying.CopyMark:
        original = await journal.read(meta.directory_id)
        through = await journal.read(meta.next_serial) - 1
        mark = copying.CopyMark(original or "", made_ns, through)
        await journal.write(partial(copying.become_copy, directory_id=self._directory_id, mark=mark))
        return mark

    async def _copy_logs(self, journal: Journal, reader: JournalReader, mark: copying.CopyMark) -> None:
        kept, _ = await journal.read(copying.counts)
        done, serial = 0, 0
        while rows := await journal.read(partial(copying.kept_runs, after_serial=serial, limit=_PAGE)):
            self._tell("copying", done, kept)
            await self._errand.run(partial(self._copy_page, rows, reader, mark.original))
            done, serial = done + len(rows), rows[-1].serial
            failpoint("backup.logs_copied")
        self._tell("copying", done, kept)

    def _copy_page(self, rows: list[RunRow], reader: JournalReader, original: str) -> None:
        for row in rows:
            self._errand.check()
            try:
                self._copy_log(row, reader, original)
            except logs.UnreadableError as problem:  # it harms only itself
                self._left_out[row.run_id] = str(problem)

    def _copy_log(self, row: RunRow, reader: JournalReader, original: str) -> None:
        paths = RunPaths(self._source.runs, row.shard, row.run_id)
        copied = RunPaths(self._copy.runs, row.shard, row.run_id)
        with logs.hold(paths, row.attempt) as log:
            if self._is_collected(row, paths, reader):
                self._collected.append(row.run_id)
                return
            logs.copy_log(log, copied, (original, self._directory_id), self._errand.check)
        logs.cut_unfinished(copied, row.attempt)

    def _copy_imports(self) -> int:
        """As they are: they are no word on this directory, nor on its copy."""
        return copy_imports(self._source.imported, self._copy.imported, self._left_out, self._errand.check)

    def _is_collected(self, row: RunRow, paths: RunPaths, reader: JournalReader) -> bool:
        """Were its files going while they were opened?  The first goes first: with it, all are there."""
        if os.path.lexists(paths.log(row.attempt)):
            return False
        now = reader.read(partial(runs.get, run_id=row.run_id))
        return now is not None and now.collected

    async def _settle(self, journal: Journal) -> dict[str, str]:
        place = Place(self._copy.runs, self._directory_id, boot_id())
        return await settle(journal, place, self._clock, self._errand)

    async def _note_collected(self, journal: Journal) -> None:
        """``collected.log`` anew, with the copy's id; what was collected meanwhile is so in the copy too."""
        gone, now = self._collected, self._clock.wall_ns()
        if gone:
            choose = partial(collecting.choose, run_ids=gone, directory_id=self._directory_id, now_ns=now)
            stones = await journal.write(choose)
            rows = await journal.write(partial(collecting.collect, stones=stones, mark=None))
            await journal.write(partial(collecting.swept, serials=[row.serial for row in rows]))
        _, collected = await journal.read(copying.counts)
        if collected:
            await journal.write(partial(meta.put, key=meta.COLLECTED_LOG, value=_OF_NO_FILE))
            await compare_with_tombstones(self._copy, journal, self._directory_id)

    async def _sync(self) -> dict[str, manifest.Digest]:
        self._tell("syncing", 0, 1)
        await self._errand.run(partial(sync_all, self._copy.path))
        names = list(files_below(self._copy.path))
        files: dict[str, manifest.Digest] = {}
        for first in range(0, len(names), _PAGE):
            self._tell("reading it back", first, len(names))
            page = names[first : first + _PAGE]
            files |= await self._errand.run(partial(self._digests, page))
        return files

    def _digests(self, names: list[str]) -> dict[str, manifest.Digest]:
        paths = ((name, os.path.join(self._copy.path, name)) for name in names)
        return {name: manifest.digest_of(path, self._errand.check) for name, path in paths}


def _checked(dest: str | os.PathLike[str], source: StateDir) -> str:
    """An absolute path at which nothing is, outside of the directory that is copied."""
    try:
        path = os.path.abspath(os.fsdecode(dest))
    except (TypeError, ValueError):
        raise invalid("dest", "must be a path") from None
    if "\0" in path:
        raise invalid("dest", "has a NUL in it")
    parent = os.path.realpath(os.path.dirname(path))
    if os.path.lexists(path):
        raise invalid("dest", "is there already", "give a new name: a backup never goes over anything")
    if not os.path.isdir(parent):
        raise invalid("dest", "is in a directory that does not exist", "make that directory first")
    original = os.path.realpath(source.path)
    if parent == original or parent.startswith(original + os.sep):
        raise invalid("dest", "is inside the state directory", "put it beside it, best on another disk")
    return path


@asynccontextmanager
async def _workshop(path: str, errand: Errand) -> AsyncIterator[StateDir]:
    """A private directory beside the final one; what is not renamed by the end is removed.

    The copy is one level below: who opens what a kill left behind finds no state directory.
    """
    parent, name = os.path.split(path)
    place = os.path.join(parent, f".{name}.{secrets.token_hex(4)}.partial")
    copy = StateDir(os.path.join(place, "copy"))
    try:
        os.mkdir(place, 0o700)  # what is there already is somebody else's
        for folder in (copy.path, copy.runs):
            make_dir(folder)
        yield copy
    except OSError as error:
        raise _failed(error, path) from error
    finally:
        await errand.run(partial(shutil.rmtree, place, ignore_errors=True))


def _put_in_place(made: str, path: str) -> None:
    """rename(2) goes over nothing but an empty directory."""
    try:
        os.rename(made, path)
    except (FileExistsError, NotADirectoryError):
        raise invalid("dest", "is there by now", "give a new name") from None
    failpoint("backup.renamed")
    fsync_dir(os.path.dirname(path))


def _failed(error: OSError, path: str) -> SupervisorError:
    if error.errno in FULL_ERRNOS:
        return SupervisorError(
            ErrorCode.NO_SPACE,
            "too little space for the backup; what there was of it is removed",
            phase=Phase.READ,
            retryable=True,
            hint="free space there, collect old runs first, or choose another disk",
            details={"path": path},
        )
    if is_shortage(error):
        return short_of(error, Phase.READ)
    return invalid("dest", f"cannot be written: {error.strerror}", "check that directory, or give another")
