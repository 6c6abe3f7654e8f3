"""Runs a second of ``true`` with 16 callers, beside 16 posix_spawn at once."""

from __future__ import annotations

from ..baselines import Baselines, spawns_per_second
from ..child import answer, host
from ..model import Context, Row
from ..stats import median

TITLE = "runs/s of true, 16 callers"
ROWS = ("throughput",)
CALLERS = 16


async def measure(ctx: Context) -> list[Row]:
    ours: list[float] = []
    floor: list[float] = []
    latency: dict[str, float] = {}
    count = ctx.size(800, 150)
    with ctx.directory("throughput") as directory, Baselines(directory) as base:
        for turn in range(ctx.size(5, 2)):
            base.sample(20)
            floor.append(spawns_per_second(ctx.size(2000, 500), CALLERS))
            latency = answer(host("throughput", directory / str(turn), count, CALLERS))
            ours.append(latency["runs_per_s"])
        floor.append(spawns_per_second(ctx.size(2000, 500), CALLERS))
        measured = {
            "runs_per_s": round(median(ours), 1),
            "p50_ms": latency["p50_ms"],
            "p99_ms": latency["p99_ms"],
            "n": count * len(ours),
        }
        numbers = {"posix_spawn_per_s": round(median(floor), 1), **base.numbers()}
        return [
            Row(key="throughput", value=median(ours) / median(floor), measured=measured, baseline=numbers)
        ]
