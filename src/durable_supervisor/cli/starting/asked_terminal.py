"""The terminal that ``--pty`` asks for: as our own is, where we have one and nothing else is said."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from durable_supervisor.model.errors import SupervisorError, invalid
from durable_supervisor.model.terminal import Terminal
from durable_supervisor.model.winsize import MAX_SIDE

_SIZE = re.compile(r"([0-9]{1,9})x([0-9]{1,9})", re.ASCII)


def asked_terminal(words: Mapping[str, Any], environ: Mapping[str, str]) -> Terminal | None:
    """From ``--pty``, ``--size`` and ``--term``.  Raises INVALID_REQUEST naming the one at fault."""
    if not words["pty"]:
        for option in ("size", "term"):
            if words[option] is not None:
                raise invalid(option, "is of a terminal, and the program gets none", "add --pty")
        return None
    ours = _our_terminal(environ)
    columns, rows = (ours.columns, ours.rows) if words["size"] is None else _size(words["size"])
    return Terminal(columns=columns, rows=rows, term=ours.term if words["term"] is None else words["term"])


def _size(text: str) -> tuple[int, int]:
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise invalid("size", "is not COLUMNSxROWS", "such as 120x40")
    return int(match[1]), int(match[2])


def _our_terminal(environ: Mapping[str, str]) -> Terminal:
    """Of its size and kind; the usual ones where we have none, or where it does not know."""
    usual = Terminal()
    columns, rows = _our_size()
    if not (columns and rows):
        return usual
    try:
        return Terminal(columns=columns, rows=rows, term=environ.get("TERM", usual.term))
    except SupervisorError:  # an odd TERM
        return Terminal(columns=columns, rows=rows)


def _our_size() -> tuple[int, int]:
    """Columns and rows; 0 where it is not known."""
    for descriptor in (1, 0):
        try:
            columns, rows = os.get_terminal_size(descriptor)
        except OSError:
            continue
        return min(columns, MAX_SIDE), min(rows, MAX_SIDE)
    return 0, 0
