"""COUNT times ``true`` by CALLERS callers, each waiting for its receipt.

    python -m bench.hosts.throughput STATE_DIR COUNT CALLERS

Prints ``{"runs_per_s", "runs", "starts", "p50_ms", "p99_ms"}``; ``starts`` counts the warm-up too.
With BENCH_PRELOAD set (a shim that slows syncs) zygote and workers get it too: the
supervisor hands them nothing of its own environment.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path

from bench.procfs import mapped, zygote_of
from bench.product import WARM_UP, run_true, supervisor, warm_up
from bench.stats import timing
from durable_supervisor.supervisor.workers import spawn

PRELOAD = "BENCH_PRELOAD"


def main(state_dir: str, count: int, callers: int) -> None:
    shim = os.environ.get(PRELOAD)
    if shim:
        # exec'd with this, the zygote forks workers that have it loaded as well.
        slowed = {"LD_PRELOAD": shim, "SLOW_SYNC_US": os.environ.get("SLOW_SYNC_US", "0")}
        vars(spawn)["_environment"] = lambda: dict(slowed)
    sys.stdout.write(json.dumps(asyncio.run(measure(Path(state_dir), count, callers))) + "\n")


def check_shim() -> None:
    """A shim that is not in the zygote would slow only half of the syncs, and flatter the figure."""
    shim = os.environ.get(PRELOAD)
    if shim and not any(shim in mapped(pid) for pid in (zygote_of(os.getpid()),) if pid):
        raise RuntimeError("the zygote runs without the shim")


async def measure(directory: Path, count: int, callers: int) -> dict[str, float]:
    async with supervisor(directory) as sup:
        await warm_up(sup)
        check_shim()
        took: list[float] = []
        left = iter(range(count))

        async def caller() -> None:
            for _ in left:
                took.append(await run_true(sup))  # noqa: PERF401  each waits for its own

        begin = time.perf_counter()
        await asyncio.gather(*(caller() for _ in range(callers)))
        seconds = time.perf_counter() - begin
    numbers = timing(took)
    return {"runs_per_s": count / seconds, "runs": count, "starts": count + WARM_UP, **numbers}


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
