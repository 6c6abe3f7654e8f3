"""Nobody is forgotten: each line of a program waits until everybody has been told of the one before.

Who misses a wake-up is woken by the next event as a rule, and nobody sees it.  Here there is none.
"""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from durable_supervisor import Command, Limits, Observer, Supervisor
from durable_supervisor.model.events import Kind
from tests.lab.follow.world import forget
from tests.lab.forms import FULL
from tests.support import PATIENCE

ROUNDS = 20_000 if FULL else 200
OBSERVERS = 3
FOLLOWERS = 9
RESTS = (0, 0, 0, 0.0002, 0.001, 0.003, 0.02)


class Rounds:
    """``told``: the last line that each follower has been told of."""

    def __init__(self, run: str, seed: int) -> None:
        self.told = [0] * FOLLOWERS
        self._run = run
        self._rng = random.Random(seed)
        self._news = asyncio.Event()

    async def follow(self, number: int, seen: Observer) -> None:
        """For some lines each time, and then from there on as a new follower."""
        cursor = 0
        while True:
            left = self._rng.choice((1, 3, 30, 300))
            async for event in seen.follow(self._run, after=cursor):
                assert event.seq == cursor + 1
                cursor = event.seq
                if event.kind != Kind.OUTPUT:
                    continue
                assert int(event.data[:6]) == self.told[number] + 1
                self.told[number] += 1
                self._news.set()
                await asyncio.sleep(self._rng.choice(RESTS))
                left -= 1
                if not left:
                    break

    async def all_told(self, line: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while min(self.told) < line:
                await self._news.wait()
                self._news.clear()


@pytest.mark.timeout(3600 if FULL else 240)
async def test_nobody_is_forgotten(state_dir: Path, tmp_path: Path) -> None:
    rng = random.Random(1)
    fifo = tmp_path / "lines"
    os.mkfifo(fifo)
    script = 'exec <"$1"; while read line; do echo "$line"; done'
    small = 32 * 1024  # a segment is full after twenty lines or so; what goes was told of long ago
    limits = Limits(max_stdout_bytes=small, max_stderr_bytes=small)
    async with AsyncExitStack() as stack:
        sup = await stack.enter_async_context(Supervisor.open(state_dir))
        observers = [Observer.open(state_dir) for _ in range(OBSERVERS)]
        readers = [sup, *[await stack.enter_async_context(one) for one in observers]]
        run = await sup.start(Command(argv=["sh", "-c", script, "sh", str(fifo)]), limits=limits)
        lines = await asyncio.to_thread(os.open, fifo, os.O_WRONLY)
        rounds = Rounds(run.id, seed=1)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(rounds.follow(number, readers[number % len(readers)]))
                for number in range(FOLLOWERS)
            ]
            for line in range(1, ROUNDS + 1):
                os.write(lines, b"%06d %s\n" % (line, b"x" * rng.choice((0, 50, 300))))
                await rounds.all_told(line)
                if rng.random() < 0.02:
                    await asyncio.to_thread(disturb, state_dir, rng)
            for task in tasks:
                task.cancel()
        os.close(lines)
        assert (await sup.wait(run.id, timeout=PATIENCE)).outcome is not None


def disturb(state_dir: Path, rng: random.Random) -> None:
    """Its socket goes, or what is on the disk leaves the page cache."""
    if rng.random() < 0.5:
        for path in state_dir.glob("runs/*/*.sock"):
            path.unlink(missing_ok=True)
    else:
        for path in state_dir.glob("runs/**/*.log"):
            forget(path)
