"""RUNS programs that chat for SECONDS at once, with short runs started and finished meanwhile.

    python -m bench.hosts.chatty STATE_DIR WRITER RUNS SECONDS

Prints ``{"lock_errors", "longest_commit_ms", "commit_p50_ms", "commits", "short_runs", "output_mb"}``.
A commit is one transaction of the journal's writer, timed in its thread.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.product import check_success, run_true, supervisor, warm_up
from bench.stats import median, ms
from durable_supervisor import Command, ErrorCode, Supervisor, SupervisorError
from durable_supervisor.journal.batch import Batches

SHORT_RUN_EVERY = 0.05


class Commits:
    """Times every transaction of the journal, and counts those that met a lock."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.lock_errors = 0
        run: Callable[..., Any] = Batches.run

        def timed(*args: Any, **kwargs: Any) -> Any:
            begin = time.perf_counter()
            try:
                return run(*args, **kwargs)
            except Exception as error:
                self.lock_errors += "locked" in str(error) or "busy" in str(error)
                raise
            finally:
                self.seconds.append(time.perf_counter() - begin)

        type.__setattr__(Batches, "run", timed)


async def measure(directory: Path, writer: str, runs: int, seconds: float) -> dict[str, float]:
    commits = Commits()
    async with supervisor(directory) as sup:
        await warm_up(sup)
        commits.seconds.clear()
        chats = [asyncio.create_task(chat(sup, writer, seconds, commits)) for _ in range(runs)]
        short = 0
        while not all(task.done() for task in chats):
            await run_true(sup)
            short += 1
            await asyncio.sleep(SHORT_RUN_EVERY)
        output = sum([await task for task in chats])
    return {
        "lock_errors": commits.lock_errors,
        "longest_commit_ms": ms(max(commits.seconds)),
        "commit_p50_ms": ms(median(commits.seconds)),
        "commits": len(commits.seconds),
        "short_runs": short,
        "output_mb": round(output / 1e6, 1),
    }


async def chat(sup: Supervisor, writer: str, seconds: float, commits: Commits) -> int:
    """Bytes that one chatty run wrote, as its receipt says."""
    try:
        run = await sup.start(Command(argv=[writer, "chat", str(seconds)]))
        seen = await sup.wait(run.id)
    except SupervisorError as error:
        if error.code is not ErrorCode.BUSY:
            raise
        commits.lock_errors += 1
        return 0
    check_success(seen)
    receipt: dict[str, Any] = seen.receipt or {}
    return int(receipt["output"]["stdout"]["bytes"])


if __name__ == "__main__":
    sys.stdout.write(
        json.dumps(asyncio.run(measure(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))))
    )
