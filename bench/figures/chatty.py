"""32 chatty runs at once: does anybody meet a lock, and how long does a commit take?"""

from __future__ import annotations

from ..baselines import Baselines
from ..child import answer, host
from ..model import Context, Row

TITLE = "32 chatty runs at once"
ROWS = ("chatty.lock_errors", "chatty.commit")
RUNS = 32


async def measure(ctx: Context) -> list[Row]:
    with ctx.directory("chatty") as directory, Baselines(directory) as base:
        base.sample(30)
        found = answer(host("chatty", directory, ctx.tool("writer"), RUNS, ctx.size(5, 2)))
        base.sample(30)
        numbers = base.numbers()
    return [
        Row(key="chatty.lock_errors", value=found["lock_errors"], measured=found, baseline=numbers),
        Row(key="chatty.commit", value=found["longest_commit_ms"], measured=found, baseline=numbers),
    ]
