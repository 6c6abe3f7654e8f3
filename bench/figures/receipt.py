"""``true`` from the call of start to its durable receipt in the caller's hands."""

from __future__ import annotations

from ..baselines import Baselines
from ..model import Context, Row
from ..product import run_true, supervisor, warm_up
from ..stats import median, timing

TITLE = "true: start -> durable receipt"
ROWS = ("receipt",)


async def measure(ctx: Context) -> list[Row]:
    took: list[float] = []
    with ctx.directory("receipt") as directory, Baselines(directory) as base:
        async with supervisor(directory) as sup:
            await warm_up(sup)
            for _ in range(ctx.size(300, 40)):
                base.sample()
                took.append(await run_true(sup))
        return [
            Row(key="receipt", value=median(took) / base.b, measured=timing(took), baseline=base.numbers())
        ]
