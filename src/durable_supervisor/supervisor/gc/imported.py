"""Imported runs in a collection: there is nothing to keep of them, neither row nor request id."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...journal.collecting import KeptRun
from ...model.errors import SupervisorError
from ...process.failpoints import failpoint
from ...process.shortage import is_shortage
from ..imports.imported import GOING, Home, homes
from ..loop.logs import report
from .plan import Sighting

if TYPE_CHECKING:
    from ..imports.files import ImportedRow


def see_imported(folder: str) -> list[Sighting]:
    """Every imported run that can be read.  Raises OSError where we ourselves are short of something."""
    there = homes(folder)
    if not there:  # as in most directories
        return []
    from ..imports.files import load

    found: list[Sighting] = []
    for home in there:
        try:
            found.append(Sighting(_kept(load(home)), _disk_bytes(home), locked=False, home=home))
        except SupervisorError as error:  # `verify` names it
            report(error)
        except OSError as error:
            if is_shortage(error):
                raise
            report(error)
    return found


def remove_imported(going: Sequence[Home]) -> int:
    """Away with them: each at once for every reader, then its files -> how many could not be removed."""
    left = 0
    for home in going:
        folder, name = os.path.split(home.path)
        gone = os.path.join(folder, GOING + name)
        try:
            os.rename(home.path, gone)
            failpoint("gc.set_aside")
            _remove(gone)
        except OSError as error:
            report(error)
            left += 1
    return left


def sweep_imported(folder: str) -> None:
    """Remove what a kill amid a removal has left."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return
    for name in names:
        if name.startswith(GOING):
            try:
                _remove(os.path.join(folder, name))
            except OSError as error:
                report(error)


def _remove(path: str) -> None:
    import shutil  # costs an owner that is only passing

    shutil.rmtree(path)


def _kept(row: ImportedRow) -> KeptRun:
    """Its age is that of its import: a bundle of long ago was just asked for."""
    mark, outcome = row.view.imported, row.view.outcome
    return KeptRun(
        serial=row.serial,
        run_id=row.run_id,
        request_id=row.request_id,
        shard=row.shard,
        state=row.state,
        attempt=row.attempt,
        may_retry=False,
        outcome=None if outcome is None else outcome.to_dict(),
        labels=row.labels,
        ended_ns=row.updated_ns if mark is None else mark.imported_ns,
    )


def _disk_bytes(home: Home) -> int:
    return sum(
        os.lstat(os.path.join(folder, name)).st_blocks * 512
        for folder, _, names in os.walk(home.path)
        for name in names
    )
