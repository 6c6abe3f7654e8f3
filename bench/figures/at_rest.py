"""Supervisor and zygote while 100 runs live and say nothing: memory, and wake-ups."""

from __future__ import annotations

import asyncio

from ..child import host, kept
from ..model import Context, Row
from ..procfs import memory, wakeups
from .idle_run import SETTLE

TITLE = "supervisor and zygote at rest, 100 live silent runs"
ROWS = ("at_rest.memory", "at_rest.wakeups")
LIVE = 100


async def measure(ctx: Context) -> list[Row]:
    seconds = float(ctx.size(10, 3))
    with ctx.directory("rest") as directory, kept(host("resting", directory, LIVE)) as pids:
        await asyncio.sleep(SETTLE)
        resting = [pids["supervisor"], *([pids["zygote"]] if pids["zygote"] else [])]
        before = {pid: wakeups(pid) for pid in (*resting, *pids["workers"])}
        await asyncio.sleep(seconds)
        woken = {pid: wakeups(pid) - count for pid, count in before.items()}
        found = {pid: memory(pid) for pid in resting}
    supervisor = found[pids["supervisor"]]
    zygote = found.get(pids["zygote"], {"pss_mb": 0.0, "rss_mb": 0.0})
    return [
        Row(
            key="at_rest.memory",
            value=sum(one["pss_mb"] for one in found.values()),
            measured={
                "supervisor_pss_mb": round(supervisor["pss_mb"], 2),
                "zygote_pss_mb": round(zygote["pss_mb"], 2),
                "rss_sum_mb": round(supervisor["rss_mb"] + zygote["rss_mb"], 2),
            },
        ),
        Row(
            key="at_rest.wakeups",
            value=sum(woken[pid] for pid in resting),
            measured={
                "seconds": seconds,
                "of_all_workers": sum(woken[pid] for pid in pids["workers"]),
                "workers": len(pids["workers"]),
            },
            note="voluntary context switches of all threads",
        ),
    ]
