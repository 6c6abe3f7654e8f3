"""One look at runs whose workers have just said that all is over: for whoever waits, and for the journal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..journal.rows import RunRow
from ..model.view import RunView
from ..process.failpoints import failpoint
from .act import Judged, clear_away
from .decide import decide
from .facts import VerdictKind
from .observe import Place, look
from .view import overlaid


class ToldEnd(NamedTuple):
    """A finished run, as a reader may be told of it and as it may be folded."""

    judged: Judged
    view: RunView


def look_at_ends(rows: Sequence[RunRow], place: Place) -> dict[str, ToldEnd]:
    """Those of the runs that are finished by a receipt which is on the disk.  Blocking.

    The others are left to the reconciler, also those that cannot be looked at: it says why.
    """
    found = ((row.run_id, _look_at(row, place)) for row in rows)
    ends = {run_id: end for run_id, end in found if end is not None}
    failpoint("reconcile.judged")
    return ends


def _look_at(row: RunRow, place: Place) -> ToldEnd | None:
    try:
        seen = look(row, place)
    except Exception:  # noqa: BLE001  (one bad log harms only itself)
        return None
    verdict = decide(seen)
    if verdict.kind is not VerdictKind.FINISHED or seen.receipt is None or not seen.synced:
        return None
    judged = Judged(row, seen, verdict)
    clear_away(judged, place)
    return ToldEnd(judged, overlaid(row, seen, verdict))
