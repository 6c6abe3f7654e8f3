"""From a write in the program to the event in a follower's hands."""

from __future__ import annotations

import time

from durable_supervisor import Command, Supervisor
from durable_supervisor.model.events import Kind

from ..baselines import Baselines
from ..model import Context, Row
from ..product import supervisor, warm_up
from ..stats import median, timing

TITLE = "write -> event in a follower's hands"
ROWS = ("follow",)
EVERY_US = 10_000
_SETTLING = 20  # lines until the worker's socket is there and the follower is on it


async def measure(ctx: Context) -> list[Row]:
    with ctx.directory("follow") as directory, Baselines(directory) as base:
        async with supervisor(directory) as sup:
            await warm_up(sup)
            base.sample(50)
            took = await _latencies(sup, ctx.tool("writer"), ctx.size(500, 80))
            base.sample(50)
        return [
            Row(key="follow", value=median(took) / base.f, measured=timing(took), baseline=base.numbers())
        ]


async def _latencies(sup: Supervisor, writer: str, lines: int) -> list[float]:
    """Each line is its own CLOCK_MONOTONIC at the write, which all processes share."""
    run = await sup.start(Command(argv=[writer, "stamps", str(lines + _SETTLING), str(EVERY_US)]))
    took: list[float] = []
    async for event in sup.follow(run.id):
        now = time.monotonic_ns()
        if event.kind == Kind.OUTPUT:
            took += [(now - int(stamp)) / 1e9 for stamp in event.data.split()]
    return took[_SETTLING:]
