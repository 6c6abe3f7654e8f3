"""Groups of processes whose worker was killed before it could remove them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ...journal import runs
from ...model.states import OPEN_STATES
from ...sandbox.resources import cgroups, run_cgroups

if TYPE_CHECKING:
    from ...journal.access import JournalAccess


class Leftovers:
    """Those of one state directory, beneath the groups that we ourselves would make new ones in."""

    def __init__(
        self,
        journal: JournalAccess,
        directory_id: str,
        blocking: Callable[[Callable[[], Any]], Awaitable[Any]],
    ) -> None:
        self._journal = journal
        self._directory_id = directory_id
        self._blocking = blocking

    async def sweep(self) -> None:
        """Remove the empty ones of runs that have no worker any more.  One with a process in it stays.

        An open run's may be empty too, just before its program is put into it.  They were listed before
        the state is read, and a later attempt has groups of other names.
        """
        found: dict[str, list[str]] = await self._blocking(self._find)
        for run_id, groups in found.items():
            if not await self._is_open(run_id):
                await self._blocking(partial(_each, run_cgroups.remove_group, groups))

    async def kill(self, run_id: str) -> None:
        """End whatever lives in the groups of this run: their names say that it is of the run."""
        found: dict[str, list[str]] = await self._blocking(self._find)
        await self._blocking(partial(_each, run_cgroups.kill_group, found.get(run_id, [])))

    async def _is_open(self, run_id: str) -> bool:
        row = await self._journal.read(lambda conn: runs.get(conn, run_id))
        return row is not None and row.state in OPEN_STATES

    def _find(self) -> dict[str, list[str]]:
        return run_cgroups.leftovers(cgroups.places(), self._directory_id)


def _each(work: Callable[[str], object], groups: list[str]) -> None:
    for group in groups:
        work(group)
