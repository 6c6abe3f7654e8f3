"""The terminal that a program may be given: a module of its own, for the few commands that ask for one."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .arguments import terminal_size
from .errors import invalid

_TERM = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]{0,63}")  # names of terminfo(5) entries


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminal:
    """A pseudo-terminal for the program: its size in characters, and its kind (``TERM``)."""

    columns: int = 80
    rows: int = 24
    term: str = "xterm-256color"

    def __post_init__(self) -> None:
        for name in ("columns", "rows"):
            terminal_size(f"pty.{name}", getattr(self, name))
        if not isinstance(self.term, str) or not _TERM.fullmatch(self.term):
            raise invalid("pty.term", "must be the name of a terminal type", "such as xterm-256color")

    def to_dict(self) -> dict[str, object]:
        """JSON form; the keys are the field names."""
        return {"columns": self.columns, "rows": self.rows, "term": self.term}


def check_terminal(value: object) -> Terminal:
    """What a command has as its ``pty``, where it has one.  Raises ``INVALID_REQUEST``."""
    if not isinstance(value, Terminal):
        raise invalid("pty", "must be None or a Terminal", "Terminal(columns=120, rows=40)")
    return value
