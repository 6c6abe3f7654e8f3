"""Runs of other directories, as they lie in this one.

    imported/<serial>.<run>/        whole from the moment it has this name; nothing in it changes
        bundle.zip                  the bundle, byte for byte
        import.json                 where it came from, when, and by whom
        run.json, journal.json      as in the bundle
        runs/<shard>/…              the log, as in the bundle

They have no row in the journal, so no request id of theirs is spent here and none of them is ever judged
or holds a slot.  Their serials come out of the same row of numbers as those of the directory's own runs.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

from ...journal.rows import RunRow
from ...model.errors import SupervisorError
from ...model.ids import RUN_ID_LENGTH
from ...model.states import RunState
from ...runlog.paths import RunPaths

if TYPE_CHECKING:
    from ...model.view import RunView
    from .files import ImportedRow

BUNDLE = "bundle.zip"
MARK = "import.json"
LOGS = "runs"
WORKSHOP = ".new"  # what is being imported; whoever owns the directory next removes it
GOING = ".gone."  # before the name of one that is being collected
_DIGITS = 18  # of a serial, which SQLite holds in 64 bits
_CACHED = 512
_SMALL = 64 << 10  # bytes of its documents; a stranger's may have a thousand times that: it is read each time


class Home(NamedTuple):
    """Where one imported run lies."""

    serial: int
    run_id: str
    path: str

    def file(self, name: str) -> str:
        return os.path.join(self.path, name)


def is_imported(row: RunRow) -> TypeGuard[ImportedRow]:
    """Is it no row of the journal's?"""
    return row.imported


def paths_of(row: RunRow, runs_dir: str) -> RunPaths:
    """Where the log of a run lies; ``runs_dir`` is where those of the directory's own do."""
    return row.paths if is_imported(row) else RunPaths(runs_dir, row.shard, row.run_id)


def name_of(serial: int, run_id: str) -> str:
    """The name that a run is imported under."""
    return f"{serial}.{run_id}"


def home_of(folder: str, name: str) -> Home | None:
    """What a name in ``imported`` stands for; None for anything else."""
    serial, _, run_id = name.partition(".")
    numbered = name.isascii() and serial.isdigit() and serial[0] != "0" and len(serial) <= _DIGITS
    if not numbered or len(run_id) != RUN_ID_LENGTH or not run_id.isalnum() or name != name.lower():
        return None
    return Home(int(serial), run_id, os.path.join(folder, name))


def homes(folder: str) -> list[Home]:
    """All that are imported, newest first.  Looks at names alone."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted((home for name in names if (home := home_of(folder, name))), reverse=True)


def next_serial(folder: str) -> int:
    """One above every serial that an imported run has."""
    return max((home.serial for home in homes(folder)), default=0) + 1


class Chosen(NamedTuple):
    """Which runs are asked for; None: any."""

    states: frozenset[RunState] | None
    label: tuple[str, str] | None

    @property
    def all(self) -> bool:
        return self.states is None and self.label is None

    def fits(self, state: str, labels: Mapping[str, object]) -> bool:
        """By its state, and by its labels."""
        return (self.states is None or state in self.states) and (
            self.label is None or labels.get(self.label[0]) == self.label[1]
        )


class Imports:
    """The imported runs of one directory.  Usable from several threads."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._loaded: OrderedDict[str, ImportedRow] = OrderedDict()

    def find(self, prefix: str) -> list[Home]:
        """Those whose run id begins so."""
        return [home for home in homes(self._folder) if home.run_id.startswith(prefix)]

    def row(self, home: Home) -> ImportedRow:
        """Raises as `load`."""
        from .files import load  # most directories have none

        with self._lock:
            known = self._loaded.get(home.path)
            if known is None or not os.path.isdir(home.path):
                self._loaded.pop(home.path, None)
                known = load(home)
                if known.size <= _SMALL:
                    self._loaded[home.path] = known
                if len(self._loaded) > _CACHED:
                    self._loaded.popitem(last=False)
            return known

    def newest(self, before: int | None, limit: int, chosen: Chosen) -> list[RunView]:
        """A page of them.  One that is damaged harms only itself: `verify` names it."""
        found: list[RunView] = []
        for home in homes(self._folder):
            if len(found) == limit:
                break
            if before is not None and home.serial >= before:
                continue
            view = self._chosen(home, chosen)
            if view is not None:
                found.append(view)
        return found

    def _chosen(self, home: Home, chosen: Chosen) -> RunView | None:
        """Of many that are passed over only what decides that is read, which is a tenth of the work."""
        from .files import state_and_labels

        known = self._loaded.get(home.path)
        if known is None and not chosen.all and not chosen.fits(*state_and_labels(home)):
            return None
        try:
            view = self.row(home).view
        except SupervisorError:
            return None
        return view if chosen.fits(view.state, view.labels) else None
