"""One look at runs whose workers have just said that all is over: for whoever waits, and for the journal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..journal.rows import RunRow
from ..model.view import RunView
from ..process.failpoints import failpoint
from .act import Judged
from .decide import decide
from .facts import VerdictKind
from .observe import Place, look_at_short
from .view import overlaid


class ToldEnd(NamedTuple):
    """A finished run, as a reader may be told of it and as it may be folded."""

    judged: Judged
    view: RunView


def look_at_ends(rows: Sequence[RunRow], place: Place) -> dict[str, ToldEnd]:
    """Those of the runs whose logs are short and hold a receipt which is on the disk.  Blocking.

    The others are left to a look of their own, which may take longer: none of these waits for that.
    """
    found = ((row.run_id, _look_at(row, place)) for row in rows)
    ends = {run_id: end for run_id, end in found if end is not None}
    failpoint("reconcile.judged")
    return ends


def _look_at(row: RunRow, place: Place) -> ToldEnd | None:
    try:
        seen = look_at_short(row, place)
    except Exception:  # noqa: BLE001  (one bad log harms only itself)
        return None
    if seen is None:
        return None
    verdict = decide(seen)
    if verdict.kind is not VerdictKind.FINISHED:
        return None
    return ToldEnd(Judged(row, seen, verdict), overlaid(row, seen, verdict))
