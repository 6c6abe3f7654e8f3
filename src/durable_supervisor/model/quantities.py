"""Numbers of documents, as people read them."""

from __future__ import annotations

import math


def number(value: object) -> float | None:
    """A finite number of a document's, which may be anything."""
    try:
        found = float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def plural(count: int, noun: str) -> str:
    """``1 run``, ``1,000 runs``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def size(count: object) -> str:
    """``512 B``, ``1.5 KiB``, ``64.0 MiB``; ``-`` for what is no number."""
    value = number(count)
    if value is None:
        return "-"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
