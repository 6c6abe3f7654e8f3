"""What ``list`` prints for people: a table, or where a terminal is too narrow for one, a few lines a run.

As `tables`, it imports rich, escapes every text first, and passes it as `Text`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ..output import describe
from ..output.describe import Form
from ..output.escape import escape_text
from .tables import rendered, room, took

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

_HEADER = ("RUN", "STATE", "STARTED", "TOOK", "REQUEST", "COMMAND")
_GAPS = 2 * (len(_HEADER) - 1)
# With less than that left of them a table tells less than lines do.
_LEAST_REQUEST, _LEAST_COMMAND = 12, 14


class _Row(NamedTuple):
    """The cells of a run, in the order of the header."""

    run: Text
    state: Text
    started: Text
    took: Text
    request: Text
    command: Text


def runs_table(forms: Iterable[Form]) -> str:
    """Newest first, as `list` has them.

    A terminal folds the state between its words, and cuts request id and command; into a pipe nothing
    is cut.  A narrow one has no table: each run takes some lines, which leave nothing out.
    """
    rows = [_row(form) for form in forms]
    free = _free(rows)
    if rows and free < min(_widest(rows, "request"), _LEAST_REQUEST) + _LEAST_COMMAND:
        return "".join(rendered(_lines(row)) for row in rows)
    return rendered(_table(rows, free))


def _free(rows: list[_Row]) -> int:
    """Columns that are left for request and command."""
    others = sum(_widest(rows, name) for name in ("run", "started", "took"))
    return room() - others - max(_longest_word(rows), len("STATE")) - _GAPS


def _longest_word(rows: list[_Row]) -> int:
    """Of the states, which fold between words."""
    return max((len(word) for row in rows for word in row.state.plain.split()), default=0)


def _widest(rows: list[_Row], name: str) -> int:
    return max(len(name), *(getattr(row, name).cell_len for row in rows)) if rows else len(name)


def _table(rows: list[_Row], free: int) -> RenderableType:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    # What may wrap is what rich makes narrower: the state down to its longest word, and the command.
    least = {"STATE": _longest_word(rows)}
    most = {"REQUEST": max(_LEAST_REQUEST, free // 2)}
    for name in _HEADER:
        wraps = name in ("STATE", "COMMAND")
        table.add_column(name, no_wrap=not wraps, min_width=least.get(name), max_width=most.get(name))
    for row in rows:
        table.add_row(*row)
    return table


def _lines(row: _Row) -> RenderableType:
    """All of a run below each other; only the command may be cut."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    head = Text("  ").join([row.run, row.state])
    times = Text(f"{row.started}" if row.took.plain == "-" else f"{row.started}, took {row.took}")
    request = Text("" if row.request.plain == "-" else f"request {row.request}", overflow="fold")
    below = [request, row.command]
    if head.cell_len + len("  ") + times.cell_len <= room():
        head = Text("  ").join([head, times])
    else:
        below.insert(0, times)
    return Group(head, *(Padding(one, (0, 0, 0, 2)) for one in below if one))


def _row(form: Form) -> _Row:
    from rich.text import Text

    began = describe.parse_time(form.get("created_at"))
    request = str(form.get("request_id") or "-")
    imported = ", imported" if form.get("imported") else ""
    return _Row(
        run=Text(str(form.get("run_id"))),
        state=Text(describe.state_word(form) + imported, style=describe.state_colour(form)),
        started=Text("-" if began is None else f"{describe.span(time.time() - began)} ago"),
        took=Text(took(form)),
        request=Text("-" if describe.is_generated(request) else escape_text(request), overflow="ellipsis"),
        command=Text(describe.command_line(form.get("argv")), no_wrap=True, overflow="ellipsis"),
    )
