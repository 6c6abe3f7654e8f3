"""A page of 100 events of 1 KiB at event 1,000,000, beside the first page of the same run."""

from __future__ import annotations

import shutil
import time

from durable_supervisor import Supervisor

from ..baselines import Baselines
from ..history import Past
from ..model import Context, NotMeasured, Row
from ..product import end
from ..stats import median, timing

TITLE = "page at event 1,000,000"
ROWS = ("deep_page",)
DEEP = 1_000_000
_SIZE = 1024
_PAGE = 100
_FIRST = 3  # after the run's own first events, so that both pages are of output alone


async def measure(ctx: Context) -> list[Row]:
    deep = ctx.size(DEEP, 50_000)
    if shutil.disk_usage(ctx.work).free < 3 * deep * _SIZE:
        raise NotMeasured("too little free space for the log")
    with ctx.directory("deep") as directory, Baselines(directory) as base:
        run_id = await (await Past.begin(directory / "state")).add_long_run(deep + 10 * _PAGE, _SIZE)
        base.sample(30)
        sup = await Supervisor.open(directory / "state")
        first: list[float] = []
        far: list[float] = []
        following: list[float] = []
        try:
            for _ in range(ctx.size(150, 40)):
                # In turn: each page is a jump for a reader that remembers where the last one ended.
                first.append(await _page(sup, run_id, _FIRST))
                far.append(await _page(sup, run_id, deep))
                following.append(await _page(sup, run_id, deep + _PAGE))
        finally:
            await end(sup)
        few = {"first_p50_ms": timing(first)["p50_ms"], "first_p99_ms": timing(first)["p99_ms"]}
        return [
            Row(
                key="deep_page",
                value=median(far) / median(first),
                measured={**timing(far), "the_page_after_it_p50_ms": timing(following)["p50_ms"]},
                baseline={**few, **base.numbers()},
                note=f"at event {deep:,}" + ("" if deep == DEEP else ", since this was a quick run"),
            )
        ]


async def _page(sup: Supervisor, run_id: str, after: int) -> float:
    begin = time.perf_counter()
    page = await sup.events(run_id, after=after, limit=_PAGE)
    took = time.perf_counter() - begin
    if len(page.events) != _PAGE or any(len(event.data) != _SIZE for event in page.events):
        raise RuntimeError("the page is not what was asked for")
    return took
