"""Colours, only on a terminal (and never with NO_COLOR, https://no-color.org)."""

from __future__ import annotations

import os

from . import out

_CODES = {"dim": "2", "bold": "1", "red": "31", "green": "32", "yellow": "33", "cyan": "36", "magenta": "35"}


class Style:
    """Wraps text in a colour, or returns it as it is.  The text is already escaped."""

    __slots__ = ("on",)

    def __init__(self, descriptor: int) -> None:
        self.on = wanted(descriptor)

    def paint(self, colour: str, text: str) -> str:
        return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if self.on and colour and text else text


def wanted(descriptor: int) -> bool:
    """Does this descriptor get colours?"""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return out.is_terminal(descriptor)
