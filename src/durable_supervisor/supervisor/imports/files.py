"""What the files of an imported run say."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ...bundle.archive import MAX_DOCUMENT
from ...bundle.contents import JOURNAL, RUN, FormatError
from ...bundle.strict import object_of
from ...bundle.told import history_of, row_of, view_of
from ...journal.history import History
from ...journal.rows import RunRow
from ...model.errors import ErrorCode, Phase, SupervisorError, unknown_run
from ...model.importing import ImportMark
from ...model.view import RunView
from ...process.shortage import is_shortage
from ...runlog.files import NotRegularError, open_regular
from ...runlog.paths import RunPaths
from .imported import LOGS, MARK, Home

FORMAT = 1  # of a folder in ``imported``
_BAD = (FormatError, KeyError, TypeError, ValueError, AttributeError, NotRegularError)


class ImportedRow(RunRow):
    """What an imported run has in place of a row: its bundle's, in the state that the bundle shows it in.

    ``size`` is that of its documents, in bytes.
    """

    home: Home
    view: RunView
    size: int

    @classmethod
    def of(cls, row: RunRow, home: Home, view: RunView, size: int) -> ImportedRow:
        made = cls(*row._replace(serial=home.serial, state=view.state))
        made.home, made.view, made.size = home, view, size
        return made

    @property
    def imported(self) -> bool:
        return True

    @property
    def paths(self) -> RunPaths:
        return RunPaths(self.home.file(LOGS), self.shard, self.run_id)


def load(home: Home) -> ImportedRow:
    """What is kept of a run.  Raises ``UNKNOWN_RUN`` once it is gone, ``STATE_DIR_REFUSED`` for damage."""
    with _judged(home):
        mark = mark_of(_document(home, MARK))
        view = view_of(_document(home, RUN))
        row = row_of(_document(home, JOURNAL))
        size = sum(os.lstat(home.file(name)).st_size for name in (RUN, JOURNAL))
        if not home.run_id == view.id == row.run_id:
            raise FormatError("its files are another run's")
    # What may be sent again, elsewhere, is no word on this directory.
    view = replace(view, serial=home.serial, retryable=False, live=None, imported=mark)
    return ImportedRow.of(row, home, view, size)


def state_and_labels(home: Home) -> tuple[str, Mapping[str, object]]:
    """As its file has them: no more than a reason to `load` it, or not to.

    The files were judged when they came.  One that cannot be read has neither.
    """
    try:
        fd, _ = open_regular(home.file(RUN))
        with open(fd, "rb") as file:
            form = json.loads(file.read(MAX_DOCUMENT))
        state, labels = form["state"], form["labels"]
        return str(state), labels if isinstance(labels, dict) else {}
    except (*_BAD, OSError, RecursionError):
        return "", {}


def mark_of(form: dict[str, Any]) -> ImportMark:
    """From ``import.json``.  Raises `FormatError`, KeyError, TypeError, ValueError."""
    if form["format"] > FORMAT:
        raise FormatError(f"format {form['format']} is newer than this program ({FORMAT})")
    return ImportMark.from_dict(form)


def history(row: ImportedRow) -> History:
    """The journal's rows that came in the bundle.  Raises as `load`."""
    with _judged(row.home):
        return history_of(_document(row.home, JOURNAL))


def _document(home: Home, name: str) -> dict[str, Any]:
    fd, size = open_regular(home.file(name))
    with open(fd, "rb") as file:
        if size > MAX_DOCUMENT:
            raise FormatError(f"{name} is too large")
        return object_of(name, file.read(size))


@contextmanager
def _judged(home: Home) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        if is_shortage(problem):
            raise
        raise _unreadable(home, os.strerror(problem.errno or 0)) from problem
    except _BAD as problem:
        raise _unreadable(home, str(problem)[:200]) from problem


def _unreadable(home: Home, problem: str) -> SupervisorError:
    if not os.path.lexists(home.path):
        return unknown_run(home.run_id)
    return SupervisorError(
        ErrorCode.STATE_DIR_REFUSED,
        f"the imported run {home.run_id} cannot be read: {problem}",
        phase=Phase.READ,
        hint="move its folder away and import the bundle again",
        details={"path": home.path},
    )
