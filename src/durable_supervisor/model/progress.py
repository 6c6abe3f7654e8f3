"""How far long work has come, told to whoever wants to hear it."""

from __future__ import annotations

from collections.abc import Callable

Tell = Callable[[str, int, int], object]
"""Hears, in the loop, what is being done (``copying``), how much of it is done, and of how much."""


def quiet(step: str, done: int, of: int) -> None:
    """Nobody wants to hear it."""
