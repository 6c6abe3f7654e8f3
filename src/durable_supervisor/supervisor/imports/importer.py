"""Takes a bundle in: the run of another directory, to be read here as that directory's.

A private copy is checked whole and laid out in ``imported/.new``, synced, and only then gets its name: a
crash before that leaves what the next owner removes, one after it leaves the whole.  The journal is read,
never written.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ...journal import runs
from ...model.arguments import absolute
from ...model.errors import ErrorCode, Phase, SupervisorError
from ...process.failpoints import failpoint
from ...runlog.files import NotRegularError
from ..admission.refusals import starts_nothing_more
from ..state.file_errors import typed
from ..state.state_dir import StateDir
from .imported import WORKSHOP

if TYPE_CHECKING:
    from ...journal.connection import Journal
    from ...model.importing import ImportReport
    from ...process.clock import Clock
    from ..loop.tasks import Tasks
    from ..opening.opening import Identity
    from .plan import Staged
    from .workshop import Workshop


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
            if os.path.lexists(os.path.join(self._place.imported, WORKSHOP)):
                await self._blocking(self._workshop().clear)

    def _workshop(self) -> Workshop:
        from .workshop import Workshop  # what reads bundles is for those who have one

        return Workshop(self._place, self._check)

    def _check(self) -> None:
        if self._leaving:
            raise starts_nothing_more()

    async def _import(self, path: str, by_uid: int) -> ImportReport:
        async with self._one:
            self._check()
            workshop = self._workshop()
            try:
                staged: Staged = await self._of_files(path, partial(workshop.stage, path))
                failpoint("import.checked")
                return await self._settle(path, workshop, staged, by_uid)
            finally:
                await self._blocking(workshop.clear)

    async def _settle(self, path: str, workshop: Workshop, staged: Staged, by_uid: int) -> ImportReport:
        from ...model.importing import ImportAdmission, ImportReport
        from .plan import decide

        run_id = staged.manifest.run_id
        row = await self._journal.read(lambda conn: runs.get(conn, run_id))
        same = await self._of_files(path, partial(workshop.known, run_id))
        admission = decide(staged, row, same, self._identity.directory_id)
        if admission is ImportAdmission.IMPORTED:
            serial, now = next(self._identity.serials), self._clock.wall_ns()
            await self._of_files(path, partial(workshop.keep, staged, serial, now, by_uid))
        return ImportReport(
            bundle=path,
            run_id=run_id,
            admission=admission,
            state=(row.state if row is not None else staged.told.view.state).value,
            directory_id=staged.directory_id,
        )

    async def _of_files(self, path: str, work: Callable[[], Any]) -> Any:
        try:
            return await self._blocking(work)
        except (OSError, NotRegularError) as error:
            raise typed(error, self._place.imported, Phase.ADMIT, _full(path)) from error


def _full(path: str) -> SupervisorError:
    return SupervisorError(
        ErrorCode.NO_SPACE,
        "no space left for the imported run; nothing of it was kept",
        phase=Phase.ADMIT,
        retryable=True,
        hint="free room on the file system of the state directory, then import it again",
        details={"path": path},
    )
