"""What a bundle's documents say of its run, each held to its form and all of them to each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..journal.history import History
from ..journal.rows import AttemptRow, RunRow
from ..model.answers import FeedEntry
from ..model.errors import SupervisorError
from ..model.events import iso_time
from ..model.forms import wall_ns
from ..model.states import JUDGED_STATES, OPEN_STATES, RunState
from ..model.view import RunView
from ..reconcile.view import of_row
from .archive import Archive
from .contents import JOURNAL, MANIFEST, RECEIPT, RUN, FormatError, Manifest
from .shapes import is_inspect_form, is_row_form

_ASKED = (
    "request_id", "owner", "serial", "argv", "cwd", "labels", "limits", "completion", "nested_in",
    "survives_unit_restart",
)  # fmt: skip
_SETTLED = ("state", "outcome", "receipt", "reason", "evidence")


@dataclass(frozen=True, slots=True)
class Told:
    """The run as it was when it was exported, and its row in the journal of then."""

    view: RunView
    row: RunRow


def told(archive: Archive) -> Told:
    """Raises `FormatError` where they contradict each other, SupervisorError as `Archive` does."""
    view = view_of(archive.document(RUN))
    row = history_of(archive.document(JOURNAL)).row
    manifest = archive.manifest
    ids = (manifest.run_id, manifest.attempts, manifest.shard)
    _agree(JOURNAL, (row.run_id, row.attempt, row.shard), ids)
    _agree(RUN, _of_view(view), _of_manifest(manifest))
    _agree_with_row(view, row)
    _agree(MANIFEST, manifest.open, view.state in OPEN_STATES)
    receipt = archive.document(RECEIPT) if RECEIPT in manifest.members else None
    _agree(RECEIPT, receipt, view.receipt)
    if not _has_its_end(view) or row.collected or view.collected_ns is not None or view.imported is not None:
        raise FormatError(f"{RUN} does not say what it should")
    return Told(view, row)


def view_of(form: dict[str, Any]) -> RunView:
    """Raises `FormatError`."""
    try:
        if is_inspect_form(form):
            return RunView.from_dict(form)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        pass
    raise FormatError(f"{RUN} does not say what it should")


def row_of(form: dict[str, Any]) -> RunRow:
    """Raises `FormatError`.  What a newer version has in a row beyond ours is skipped."""
    row = form.get("run")
    if not isinstance(row, dict) or not is_row_form(row):
        raise FormatError(f"{JOURNAL} does not say what it should")
    known = {name: row[name] for name in RunRow._fields if name in row}
    try:
        return RunRow(**{**known, "state": RunState(row["state"])})
    except (TypeError, ValueError):
        raise FormatError(f"{JOURNAL} does not say what it should") from None


def history_of(form: dict[str, Any]) -> History:
    """From a journal-rows document of any origin.  Raises `FormatError`."""
    row = row_of(form)
    try:
        return History(
            row,
            [AttemptRow(**attempt) for attempt in form["attempts"]],
            [FeedEntry.from_dict(change) for change in form["feed"]],
            [(wall_ns(word["time"]), dict(word["document"])) for word in form["resolutions"]],
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise FormatError(f"{JOURNAL} does not say what it should") from None


def _has_its_end(view: RunView) -> bool:
    """A finished run ended as its receipt says."""
    if view.state is not RunState.FINISHED:
        return True
    if view.receipt is None or view.outcome is None:
        return False
    return view.receipt.get("outcome") == view.outcome.to_dict()


def _of_view(view: RunView) -> tuple[object, ...]:
    return view.id, view.attempt, view.state.value, view.head


def _of_manifest(manifest: Manifest) -> tuple[object, ...]:
    return manifest.run_id, manifest.attempts, manifest.state, manifest.head


def _agree_with_row(view: RunView, row: RunRow) -> None:
    """What was asked for never changes, and what the journal has settled is how it is shown."""
    try:
        plain = of_row(row)
    except SupervisorError:
        raise FormatError(f"{JOURNAL} does not say what it should") from None
    _agree(RUN, iso_time(view.created_ns), iso_time(plain.created_ns))
    same = _ASKED if row.state in JUDGED_STATES else _ASKED + _SETTLED
    for name in same:
        _agree(RUN, getattr(view, name), getattr(plain, name))


def _agree(name: str, one: object, other: object) -> None:
    if one != other:
        raise FormatError(f"{name} is of another run, attempt or state than the rest of the bundle")
