"""Does a long past make anything slower?  Two directories side by side: 100 and 100,000 finished runs."""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from durable_supervisor import Command, Supervisor

from ..baselines import TRUE, Baselines
from ..history import Past
from ..model import Context, Row
from ..product import end, warm_up
from ..stats import median, timing

TITLE = "growth: 100 and 100,000 finished runs"
ROWS = ("growth.open", "growth.start", "growth.inspect", "growth.list")
FEW = 100
MANY = 100_000
_PAGE = 100

Work = Callable[["Side"], Awaitable[object]]


@dataclass(slots=True)
class Side:
    """One of the two directories, and the seconds that each verb took there."""

    state: Path
    ids: list[str] = field(default_factory=list)
    took: dict[str, list[float]] = field(default_factory=dict)
    supervisor: Supervisor | None = None

    @property
    def sup(self) -> Supervisor:
        assert self.supervisor is not None
        return self.supervisor


async def measure(ctx: Context) -> list[Row]:
    many = ctx.size(MANY, 5000)
    with ctx.directory("growth") as directory, Baselines(directory) as base:
        few, lots = [await _make(directory / name, count) for name, count in (("few", FEW), ("many", many))]
        base.sample(30)
        for _ in range(ctx.size(12, 4)):
            await _both(few, lots, "open", _open_and_close)
        for side in (few, lots):
            side.supervisor = await Supervisor.open(side.state, zygote=True)
        try:
            for side in (few, lots):
                await warm_up(side.sup)
            for _ in range(ctx.size(100, 25)):
                base.sample()
                await _both(few, lots, "start", _start)
                await _both(few, lots, "inspect", _inspect)
                await _both(few, lots, "list", _list)
        finally:
            for side in (few, lots):
                await end(side.sup)
        note = f"{many:,} finished runs" + ("" if many == MANY else ", since this was a quick run")
        return [_row(verb, few, lots, base.numbers(), note) for verb in ("open", "start", "inspect", "list")]


async def _make(state: Path, count: int) -> Side:
    past = await Past.begin(state)
    return Side(state, await past.add_short_runs(count))


async def _both(few: Side, lots: Side, verb: str, work: Work) -> None:
    """One of each in a random order, so that neither always comes second."""
    sides = [few, lots]
    random.shuffle(sides)
    for side in sides:
        begin = time.perf_counter()
        run = await work(side)
        side.took.setdefault(verb, []).append(time.perf_counter() - begin)
        if isinstance(run, str):
            await side.sup.wait(run)


async def _open_and_close(side: Side) -> None:
    await (await Supervisor.open(side.state)).close()


async def _start(side: Side) -> str:
    return (await side.sup.start(Command(argv=[TRUE]))).id


async def _inspect(side: Side) -> None:
    await side.sup.inspect(random.choice(side.ids))


async def _list(side: Side) -> None:
    await side.sup.list(limit=_PAGE)


def _row(verb: str, few: Side, lots: Side, base: dict[str, float], note: str) -> Row:
    before, after = few.took[verb], lots.took[verb]
    few_ms = {"with_100_p50_ms": timing(before)["p50_ms"], "with_100_p99_ms": timing(before)["p99_ms"]}
    return Row(
        key=f"growth.{verb}",
        value=median(after) / median(before),
        measured=timing(after),
        baseline={**few_ms, **base},
        note=note,
    )
