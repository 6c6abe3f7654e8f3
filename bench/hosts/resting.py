"""COUNT live silent runs, and then nothing, until a line comes on stdin.

    python -m bench.hosts.resting STATE_DIR COUNT

Prints ``{"supervisor": pid, "zygote": pid | null, "workers": [pid…], "programs": [pid…]}`` once all run.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.procfs import zygote_of
from bench.product import supervisor
from durable_supervisor import Command, Supervisor

SLEEP = shutil.which("sleep") or "/bin/sleep"


async def rest(directory: Path, count: int) -> None:
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    loop.add_reader(0, told.set)
    async with supervisor(directory) as sup:
        runs: list[str] = []
        left = iter(range(count))
        await asyncio.gather(*(start_some(sup, left, runs) for _ in range(8)))
        views = [await sup.inspect(run_id) for run_id in runs]
        document = {
            "supervisor": os.getpid(),
            "zygote": zygote_of(os.getpid()),
            "workers": [view.worker["pid"] for view in views if view.worker],
            "programs": [view.program["pid"] for view in views if view.program],
        }
        sys.stdout.write(json.dumps(document) + "\n")
        sys.stdout.flush()
        await told.wait()
        loop.remove_reader(0)


async def start_some(sup: Supervisor, left: Iterator[int], runs: list[str]) -> None:
    for _ in left:
        run = await sup.start(Command(argv=[SLEEP, "3600"]))
        runs.append(run.id)


if __name__ == "__main__":
    asyncio.run(rest(Path(sys.argv[1]), int(sys.argv[2])))
