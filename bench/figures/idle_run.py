"""What a live idle run costs in memory: the PSS of its worker, with 50 of them live."""

from __future__ import annotations

import asyncio

from ..child import host, kept
from ..model import Context, Row
from ..procfs import memory
from ..stats import median

TITLE = "live idle run, PSS, 50 live"
ROWS = ("idle_run",)
LIVE = 50
SETTLE = 6.0  # sockets made, folds written, memory shared: all that comes after a start has come


async def measure(ctx: Context) -> list[Row]:
    with ctx.directory("idle") as directory, kept(host("resting", directory, LIVE)) as pids:
        await asyncio.sleep(SETTLE)
        found = [memory(pid) for pid in pids["workers"]]
    return [
        Row(
            key="idle_run",
            value=sum(one["pss_mb"] for one in found) / len(found),
            measured={"rss_mb_p50": round(median([one["rss_mb"] for one in found]), 2), "n": len(found)},
            note="the worker; the program's own memory is its own affair",
        )
    ]
