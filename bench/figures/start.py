"""A durable start, embedded: when its intent is durable, and when the program is released."""

from __future__ import annotations

import time

from durable_supervisor import Command

from ..baselines import TRUE, Baselines
from ..model import Context, NotMeasured, Row
from ..product import CommitClock, check_success, supervisor, warm_up
from ..stats import median, p99, timing

TITLE = "durable start: intent durable, program released"
ROWS = ("start.acked", "start.released", "start.released_p99")


async def measure(ctx: Context) -> list[Row]:
    acked: list[float] = []
    released: list[float] = []
    with ctx.directory("start") as directory, Baselines(directory) as base:
        async with supervisor(directory) as sup:
            clock = CommitClock(sup)
            await warm_up(sup)
            for _ in range(ctx.size(300, 40)):
                base.sample()
                clock.at = 0.0
                begin = time.perf_counter()
                run = await sup.start(Command(argv=[TRUE]))
                now = time.perf_counter()
                if not clock.at:
                    raise NotMeasured("the commit of the intent was not seen")
                acked.append(clock.at - begin)
                released.append(now - begin)
                check_success(await sup.wait(run.id))  # the next one starts on an idle machine
        numbers = base.numbers()
        return [
            Row(key="start.acked", value=median(acked) / base.f, measured=timing(acked), baseline=numbers),
            Row(
                key="start.released",
                value=median(released) / base.b,
                measured=timing(released),
                baseline=numbers,
            ),
            Row(
                key="start.released_p99",
                value=p99(released) / median(released),
                measured=timing(released),
                baseline=numbers,
            ),
        ]
