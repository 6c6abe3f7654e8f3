"""The bounds of a terminal's size, for who asks for one and for the worker that makes it."""

from __future__ import annotations

MAX_SIDE = 10_000  # columns or rows; TIOCSWINSZ itself takes 65535 (ioctl_tty(2))


def is_side(value: object) -> bool:
    """May a terminal have that many columns or rows?"""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_SIDE
