"""The same throughput on a slower disk: 3 ms more for every sync, of supervisor and workers alike."""

from __future__ import annotations

from ..baselines import Baselines
from ..child import answer, host
from ..hosts.throughput import PRELOAD
from ..model import Context, Row
from ..stats import median
from .throughput import CALLERS

TITLE = "runs/s with 3 ms added to every sync"
ROWS = ("slow_sync",)
ADDED_US = 3000


async def measure(ctx: Context) -> list[Row]:
    shim = ctx.tool("slow_sync")
    slowed = {"LD_PRELOAD": shim, PRELOAD: shim, "SLOW_SYNC_US": str(ADDED_US)}
    # The shim is loaded on both sides, with no delay on one: only the delay differs.
    without = {**slowed, "SLOW_SYNC_US": "0"}
    count = ctx.size(600, 120)
    rates: dict[str, list[float]] = {"with": [], "without": []}
    with ctx.directory("slow-sync") as directory, Baselines(directory) as base:
        for turn in range(ctx.size(4, 2)):
            base.sample(20)
            for name, extra in (("without", without), ("with", slowed)):
                found = answer(host("throughput", directory / f"{turn}-{name}", count, CALLERS), extra)
                rates[name].append(found["runs_per_s"])
        quick, slow = median(rates["without"]), median(rates["with"])
        return [
            Row(
                key="slow_sync",
                value=slow / quick,
                measured={"runs_per_s": round(slow, 1), "n": count * len(rates["with"])},
                baseline={"without_per_s": round(quick, 1), **base.numbers()},
            )
        ]
