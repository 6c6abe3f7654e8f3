"""Takes a bundle in: the run of another directory, to be read here as that directory's.

A private copy is checked whole and laid out in ``imported/.new``, synced, and only then gets its name: a
crash before that leaves what the next owner removes, one after it leaves the whole.  The journal is read,
never written.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

from ..bundle.archive import Archive
from ..bundle.check import check_bundle
from ..bundle.contents import JOURNAL, RUN, Manifest
from ..bundle.told import Told
from ..bundle.unpack import check_room, unpack
from ..journal import runs
from ..journal.connection import Journal
from ..model.arguments import absolute
from ..model.errors import ErrorCode, Phase, SupervisorError
from ..model.importing import ImportAdmission, ImportMark, ImportReport
from ..model.verify import VerifyReport
from ..process.clock import Clock
from ..process.failpoints import failpoint
from ..process.shortage import is_shortage
from ..runlog.create import read_header
from ..runlog.files import (
    FULL_ERRNOS,
    NotRegularError,
    create_file,
    fsync_dir,
    list_segments,
    make_dir,
    open_regular,
)
from ..runlog.paths import RunPaths
from ..runlog.tree import sync_all
from .hosting import short_of
from .import_plan import Staged, decide, refusal
from .imported import BUNDLE, LOGS, MARK, WORKSHOP, homes, name_of
from .opening import Identity
from .refusals import starts_nothing_more
from .state_dir import StateDir, unusable
from .tasks import Tasks


class Importer:
    """Of one owner; one import at a time."""

    def __init__(
        self,
        place: StateDir,
        journal: Journal,
        identity: Identity,
        clock: Clock,
        blocking: Callable[[Callable[[], Any]], Awaitable[Any]],
        tasks: Tasks,
    ) -> None:
        self._place = place
        self._shop = os.path.join(place.imported, WORKSHOP)
        self._journal = journal
        self._identity = identity
        self._clock = clock
        self._blocking = blocking
        self._tasks = tasks
        self._leaving = False
        self._one = asyncio.Lock()

    async def import_(self, bundle: str | os.PathLike[str], by_uid: int) -> ImportReport:
        """Take one bundle in.  A cancelled one is finished whole.

        Raises ``INVALID_REQUEST`` (field ``bundle``), ``IMPORT_CONFLICT``, ``NO_SPACE``, ``BUSY``,
        ``STATE_DIR_REFUSED``, ``SUPERVISOR_CLOSED``; then nothing of it is in the directory.
        """
        path = absolute("bundle", bundle)
        return await asyncio.shield(self._tasks.spawn(self._import(path, by_uid)))

    def leave(self) -> None:
        """Begin nothing more, and copy nothing to its end."""
        self._leaving = True

    async def sweep(self) -> None:
        """Remove what an owner that was killed has left in the workshop."""
        async with self._one:
            await self._blocking(self._clear)

    async def _import(self, path: str, by_uid: int) -> ImportReport:
        async with self._one:
            try:
                staged: Staged = await self._of_files(path, partial(self._stage, path))
                failpoint("import.checked")
                run_id = staged.manifest.run_id
                row = await self._journal.read(lambda conn: runs.get(conn, run_id))
                same = await self._of_files(path, partial(self._known, staged))
                admission = decide(staged, row, same, self._identity.directory_id)
                if admission is ImportAdmission.IMPORTED:
                    await self._of_files(path, partial(self._keep, staged, by_uid))
            finally:
                await self._blocking(self._clear)
        state = row.state if row is not None else staged.told.view.state
        return ImportReport(
            bundle=path,
            run_id=run_id,
            admission=admission,
            state=state.value,
            directory_id=staged.directory_id,
        )

    def _stage(self, path: str) -> Staged:
        with Archive(path) as archive:  # what is none at all is refused before anything is written
            self._make_workshop()
            sizes = sum(member.size for member in archive.manifest.members.values())
            check_room(path, self._shop, archive.size + sizes)
            sha256 = self._write(BUNDLE, archive.raw())
        failpoint("import.copied")
        with Archive(os.path.join(self._shop, BUNDLE)) as copy:  # nobody else can change it from here on
            copy.path = path
            told = self._checked(copy)
            paths = RunPaths(os.path.join(self._shop, LOGS), copy.manifest.shard, copy.manifest.run_id)
            for name in (RUN, JOURNAL):
                self._write(name, copy.chunks(name))
            return Staged(copy.manifest, told, _origin(paths, copy.manifest.attempts), sha256)

    def _checked(self, copy: Archive) -> Told:
        report = VerifyReport(copy.path, "bundle")
        logs = os.path.join(self._shop, LOGS)
        make_dir(logs)
        told = check_bundle(copy, partial(unpack, copy, logs), report)
        problem = refusal(report, told)
        if told is None or problem is not None:
            raise _damaged(copy.path, problem or "it is malformed")
        return told

    def _known(self, staged: Staged) -> Manifest | None:
        """What the same run was imported with."""
        for home in homes(self._place.imported):
            if home.run_id == staged.manifest.run_id:
                with Archive(home.file(BUNDLE)) as archive:
                    return archive.manifest
        return None

    def _keep(self, staged: Staged, by_uid: int) -> None:
        mark = ImportMark(
            directory_id=staged.directory_id,
            imported_ns=self._clock.wall_ns(),
            by_uid=by_uid,
            version=staged.manifest.version,
            sha256=staged.sha256,
        )
        self._write(MARK, [json.dumps(mark.to_dict(), indent=1).encode("ascii")])
        sync_all(self._shop)
        failpoint("import.synced")
        name = name_of(next(self._identity.serials), staged.manifest.run_id)
        os.rename(self._shop, os.path.join(self._place.imported, name))
        failpoint("import.renamed")
        fsync_dir(self._place.imported)

    def _make_workshop(self) -> None:
        if not os.path.isdir(self._place.imported):
            make_dir(self._place.imported)
            fsync_dir(self._place.path)
        self._clear()
        make_dir(self._shop)

    def _clear(self) -> None:
        shutil.rmtree(self._shop, ignore_errors=True)

    def _write(self, name: str, chunks: Iterable[bytes]) -> str:
        """A new file in the workshop -> its SHA-256 digest, in hex."""
        digest = hashlib.sha256()
        with open(create_file(os.path.join(self._shop, name)), "wb") as file:
            for chunk in chunks:
                if self._leaving:
                    raise starts_nothing_more()
                file.write(chunk)
                digest.update(chunk)
        return digest.hexdigest()

    async def _of_files(self, path: str, work: Callable[[], Any]) -> Any:
        try:
            return await self._blocking(work)
        except (OSError, NotRegularError) as error:
            raise _typed(error, path, self._place) from error


def _origin(paths: RunPaths, attempts: int) -> str | None:
    """The id of the directory that ran it, by the headers of its log, the newest attempt's first."""
    for attempt in range(attempts, 0, -1):
        for key in list_segments(paths, attempt):
            try:
                fd, _ = open_regular(paths.segment_file(attempt, key))
            except (FileNotFoundError, NotRegularError):
                continue
            try:
                header, _ = read_header(fd)
            finally:
                os.close(fd)
            if header is not None:
                return header.directory_id
    return None


def _damaged(path: str, problem: str) -> SupervisorError:
    return SupervisorError(
        ErrorCode.INVALID_REQUEST,
        f"bundle: {problem}",
        phase=Phase.READ,
        hint="`durable-supervisor verify FILE` tells all that is wrong; export the run again",
        details={"field": "bundle", "path": path},
    )


def _typed(error: OSError | NotRegularError, path: str, place: StateDir) -> SupervisorError:
    if isinstance(error, NotRegularError):
        return unusable(str(error), OSError(errno.EINVAL, os.strerror(errno.EINVAL)))
    if is_shortage(error):
        return short_of(error, Phase.ADMIT)
    if error.errno in FULL_ERRNOS:
        return SupervisorError(
            ErrorCode.NO_SPACE,
            "no space left for the imported run; nothing of it was kept",
            phase=Phase.ADMIT,
            retryable=True,
            hint="free room on the file system of the state directory, then import it again",
            details={"path": path},
        )
    return unusable(os.fsdecode(error.filename or place.imported), error)
