"""100 MiB of output paged to a client in the same process, raw and as JSON, beside its capture."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from durable_supervisor import Event, Supervisor
from durable_supervisor.model.events import Kind

from ..baselines import Baselines
from ..model import Context, Row
from ..product import run_to_end, supervisor, warm_up
from ..stats import median
from .output import BLOCK

TITLE = "100 MiB paged to a client, raw and JSON"
ROWS = ("paging.raw", "paging.json", "paging.dumps")
_PAGE = 1000


def _dumps(event: Event) -> object:
    """By who makes the line with nothing of ours."""
    return json.dumps(event.to_dict())


# What is done to each event.
_WAYS: dict[str, Callable[[Event], object]] = {
    "paging.raw": lambda event: None,
    "paging.json": Event.to_json,
    "paging.dumps": _dumps,
}
_NOTES = {
    "paging.raw": "the client is in the supervisor's process",
    "paging.dumps": "for comparison, without a bound",
}


async def measure(ctx: Context) -> list[Row]:
    total = ctx.size(100, 16) << 20
    capture: list[float] = []
    paged: dict[str, list[float]] = {key: [] for key in ROWS}
    with ctx.directory("paging") as directory, Baselines(directory) as base:
        async with supervisor(directory) as sup:
            await warm_up(sup)
            argv = [
                ctx.tool("writer"), "blocks", str(BLOCK), str(total // BLOCK), str(directory / "report")
            ]  # fmt: skip
            for _ in range(ctx.size(5, 2)):
                base.sample(10)
                run_id, seconds = await run_to_end(sup, argv)
                capture.append(total / seconds / 1e6)
                for key in ROWS:
                    paged[key].append(total / await _page_all(sup, run_id, total, _WAYS[key]) / 1e6)
        numbers = {"capture_mb_per_s": round(median(capture), 1), **base.numbers()}
        return [
            Row(
                key=key,
                value=median([mine / other for mine, other in zip(rates, capture, strict=True)]),
                measured={"mb_per_s": round(median(rates), 1), "n": len(rates)},
                baseline=numbers,
                note=_NOTES.get(key, ""),
            )
            for key, rates in paged.items()
        ]


async def _page_all(sup: Supervisor, run_id: str, total: int, use: Callable[[Event], object]) -> float:
    """Seconds for all pages, each event put to ``use``.  Raises RuntimeError unless every byte came."""
    begin = time.perf_counter()
    after = size = 0
    while True:
        page = await sup.events(run_id, after=after, limit=_PAGE)
        for event in page.events:
            use(event)
            if event.kind == Kind.OUTPUT:
                size += len(event.data)
        after = page.next_after
        if page.end:
            break
    if size != total:
        raise RuntimeError(f"{size} bytes of {total} were paged")
    return time.perf_counter() - begin
