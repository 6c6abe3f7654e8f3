"""One figure, or a few that share their work, in each module.

A figure module has ``TITLE`` and ``async def measure(ctx) -> list[Row]``.  Raising
`NotMeasured` reports all its rows (``ROWS``) as not measured, with the reason.
"""

from __future__ import annotations

from importlib import import_module
from typing import Protocol, cast

from ..model import Context, Row

NAMES = (
    "start", "receipt", "throughput", "slow_sync", "fsyncs", "output", "follow", "paging", "deep_page",
    "idle_run", "at_rest", "chatty", "growth", "cli",
)  # fmt: skip


class Figure(Protocol):
    TITLE: str
    ROWS: tuple[str, ...]

    async def measure(self, ctx: Context) -> list[Row]: ...


def load(name: str) -> Figure:
    return cast(Figure, import_module(f"{__name__}.{name}"))
