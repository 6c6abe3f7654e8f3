"""Is all of a state directory, a backup or a bundle as it should be?  Repairs nothing, writes nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from functools import partial

from ..bundle.check import check_bundle
from ..bundle.check_log import Setting, check_log
from ..bundle.reader import BundleReader
from ..journal import copying, meta, runs
from ..journal.reader import JournalReader
from ..journal.rows import RunRow
from ..model.backup import MANIFEST
from ..model.errors import ErrorCode, Phase, SupervisorError
from ..model.progress import Tell, quiet
from ..model.verify import VerifyReport
from ..process.clock import boot_id
from ..process.open_files import raise_limit
from ..process.shortage import is_shortage
from ..runlog.paths import RunPaths
from ..supervisor.admission.host import short_of
from ..supervisor.state import state_dir as directory
from ..supervisor.state.state_dir import StateDir
from . import manifest
from .check_files import check_files, check_manifest
from .check_imports import check_imports
from .check_journal import check_journal, check_tombstones
from .errand import Errand

_PAGE = 64
_JOURNAL = frozenset({
    ErrorCode.JOURNAL_MISSING, ErrorCode.JOURNAL_CORRUPT, ErrorCode.JOURNAL_NEWER,
    ErrorCode.JOURNAL_IO, ErrorCode.STATE_DIR_REFUSED,
})  # fmt: skip

OpenJournal = Callable[[str], JournalReader]


async def verify(path: str | os.PathLike[str] | None = None, *, tell: Tell = quiet) -> VerifyReport:
    """Look at everything: a state directory, also one in use, a backup, or a bundle (a file).

    ``path``: else ``$DURABLE_SUPERVISOR_STATE_DIR``, else the user's state directory.  What is wrong is in
    the report; raises SupervisorError only where there is nothing to look at (``STATE_DIR_REFUSED``;
    ``INVALID_REQUEST`` for a file that is no bundle), and ``BUSY`` where descriptors are short.
    """
    raise_limit()
    errand = Errand()
    place = directory.locate(path)
    try:
        if os.path.isfile(place.path):
            return await _bundle(place.path, errand)
        return await _directory(place, errand, tell)
    except OSError as error:
        if is_shortage(error):
            raise short_of(error, Phase.READ) from error
        raise directory.unusable(os.fsdecode(error.filename or place.path), error) from error


async def _bundle(path: str, errand: Errand) -> VerifyReport:
    report = VerifyReport(path, "bundle")
    async with BundleReader(path) as reader:
        await errand.run(partial(check_bundle, reader.archive, reader.unpacked, report, errand.check))
    return report


async def _directory(place: StateDir, errand: Errand, tell: Tell) -> VerifyReport:
    """Where nobody is at work not even the -shm file is made that SQLite wants for reading."""
    if manifest.is_unused(place.path) or not directory.is_owned(place):
        try:
            return await _Directory(place, errand, tell, JournalReader.open_at_rest).verify()
        except SupervisorError as error:
            if error.code is not ErrorCode.BUSY:
                raise  # else somebody came meanwhile
    return await _Directory(place, errand, tell, JournalReader.open).verify()


class _Directory:
    def __init__(self, place: StateDir, errand: Errand, tell: Tell, open_journal: OpenJournal) -> None:
        self._place = place
        self._open_journal = open_journal
        self._errand = errand
        self._tell = tell
        self._report = VerifyReport(place.path, "directory")

    async def verify(self) -> VerifyReport:
        _check_is_one(self._place)
        in_thread, report = self._errand.run, self._report
        self._tell("reading files", 0, 1)
        await in_thread(partial(check_manifest, self._place.path, report, self._errand.check))
        try:
            reader = await in_thread(partial(self._open_journal, self._place.journal))
        except SupervisorError as error:
            if error.code not in _JOURNAL:
                raise
            report.add("error", error.code.value.lower(), self._place.journal, error.message, error.hint)
            await in_thread(partial(self._files, lambda run_id: True))  # nobody can tell
            return report
        with closing(reader):
            await self._all(reader)
        return report

    def _files(self, known: Callable[[str], bool]) -> None:
        check_imports(self._place.imported, self._report, self._errand.check)
        owned = directory.is_owned(self._place)
        check_files(self._place.path, self._report, known, owned=owned)

    async def _all(self, reader: JournalReader) -> None:
        in_thread, report = self._errand.run, self._report
        try:
            self._tell("reading the journal", 0, 1)
            await in_thread(partial(check_journal, self._place, reader, report))
            await in_thread(partial(check_tombstones, self._place, reader, report))
            await self._logs(reader)
        except SupervisorError as error:
            if error.code not in (ErrorCode.JOURNAL_CORRUPT, ErrorCode.JOURNAL_IO):
                raise
            report.add("error", error.code.value.lower(), self._place.journal, error.message, error.hint)
        await in_thread(partial(self._files, partial(_is_known, reader)))

    async def _logs(self, reader: JournalReader) -> None:
        setting = Setting(
            directory_id=reader.read(meta.directory_id),
            boot_id=boot_id(),
            owned=directory.is_owned(self._place),
            row_now=lambda run_id: reader.read(partial(runs.get, run_id=run_id)),
            check=self._errand.check,
        )
        kept, _ = reader.read(copying.counts)
        done, serial = 0, 0
        while rows := reader.read(partial(copying.kept_runs, after_serial=serial, limit=_PAGE)):
            self._tell("reading logs", done, kept)
            await self._errand.run(partial(self._page, rows, setting))
            done, serial = done + len(rows), rows[-1].serial

    def _page(self, rows: list[RunRow], setting: Setting) -> None:
        for row in rows:
            self._errand.check()
            check_log(row, RunPaths(self._place.runs, row.shard, row.run_id), setting, self._report)


def _check_is_one(place: StateDir) -> None:
    """Is there anything of a state directory?  Raises ``STATE_DIR_REFUSED``, ``OSError``."""
    if not {"journal.db", "runs", "key", MANIFEST} & set(os.listdir(place.path)):
        raise SupervisorError(
            ErrorCode.STATE_DIR_REFUSED,
            "there is no state directory, nor a backup of one",
            phase=Phase.READ,
            hint="give the directory itself, or a bundle",
            details={"path": place.path},
        )


def _is_known(reader: JournalReader, run_id: str) -> bool:
    try:
        return reader.read(partial(runs.get, run_id=run_id)) is not None
    except SupervisorError:
        return True  # told already
