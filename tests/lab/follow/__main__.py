"""``python -m tests.lab.follow --seed N --seconds S``: many followers, of every patience, in a bad year.

Each is to be told each event once, in order, and to come to the end.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from pathlib import Path

from durable_supervisor import AsyncClient, Event, Supervisor, SupervisorError
from durable_supervisor.model.events import Kind
from durable_supervisor.model.states import RunState
from tests.crash.world import gapless
from tests.lab.follow.books import Book, Lag
from tests.lab.follow.world import LIVE, World
from tests.support import eventually_async, reap_state_dir

FOLLOWERS = 40
PATIENCE = 60.0  # for all to come to the end
UNOWNED = 8.0  # a follower waits for an owner's word for a second, from the next owner's start for more
# What a reader is told while owners come and go; another one goes on at its cursor.
PASSING = {"SUPERVISOR_CLOSED", "SERVICE_UNAVAILABLE", "SHUTTING_DOWN", "BUSY", "TIMEOUT"}


class Followers:
    """Each takes one run after the other.  One in three never rests, so that its delays are the product's."""

    def __init__(self, world: World, client: AsyncClient, seed: int) -> None:
        self._world = world
        self._client = client
        self._seed = seed
        self.books: list[Book] = []
        self.over = False  # no more runs are taken on

    async def follow(self, number: int) -> None:
        rng = random.Random(f"{self._seed}:{number}")
        while not self.over:
            if self._world.runs:
                self.books.append(book := Book(rng.choice(self._world.runs[-LIVE:])))
                await self._to_the_end(book, rng, rests=number % 3 > 0)
            await asyncio.sleep(rng.random() * 0.1)

    async def _to_the_end(self, book: Book, rng: random.Random, *, rests: bool) -> None:
        while not book.ended:
            reader, events = self._reader(book, rng)
            patience = rng.choice((0.02, 0.3, 3.0, None)) if rests else None
            try:
                async with asyncio.timeout(patience), aclosing(events):
                    await self._read(book, rng, reader, events, rests=rests)
            except TimeoutError:
                pass  # cancelled wherever it was
            except SupervisorError as error:
                if error.code.value not in PASSING:
                    raise
                await asyncio.sleep(0.05)

    async def _read(
        self, book: Book, rng: random.Random, reader: str, events: AsyncGenerator[Event, None], *, rests: bool
    ) -> None:
        since, left = time.time_ns(), rng.choice((1, 5, 50, 500)) if rests else 1 << 30
        async for event in events:
            book.take(event, since, reader)
            left -= 1
            if not left:
                return
            if rests and rng.random() < 0.2:
                await asyncio.sleep(rng.choice((0, 0.001, 0.01, 0.1, 1.0)))
                since = time.time_ns()  # what came meanwhile is late by its own doing
        book.ended = time.monotonic()

    def _reader(self, book: Book, rng: random.Random) -> tuple[str, AsyncGenerator[Event, None]]:
        if rng.random() < 0.3:
            return "client", self._client.follow(book.run, after=book.cursor)
        return "observer", rng.choice(self._world.observers).follow(book.run, after=book.cursor)


async def experiment(seed: int, seconds: float, folder: Path) -> None:
    world = World(seed, folder)
    try:
        await eventually_async((world.state / "supervisor.sock").exists, PATIENCE, "the service is up")
        async with AsyncClient.connect(world.state, reconnect=20) as client:
            followers = Followers(world, client, seed)
            tasks = [asyncio.create_task(followers.follow(number)) for number in range(FOLLOWERS)]
            await asyncio.gather(violence(world, seconds, tasks), starts(world, client, seconds, tasks))
            followers.over = True
            await world.settle(client)
            done, waiting = await asyncio.wait(tasks, timeout=PATIENCE)
            stuck = [book for book in followers.books if not book.ended]
            for task in waiting:
                task.cancel()
            for task in done:
                task.result()
            assert not waiting, ("they wait for ever", [(book.run, book.cursor) for book in stuck])
    finally:
        await world.close()
    await judge(world, followers.books)


def failed(tasks: list[asyncio.Task[None]]) -> bool:
    return any(task.done() and task.exception() for task in tasks)


async def violence(world: World, seconds: float, tasks: list[asyncio.Task[None]]) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and not failed(tasks):
        await world.happen()
        for _ in range(world.rng.randint(1, 6)):
            world.keep_going()
            await asyncio.sleep(0.05)


async def starts(world: World, client: AsyncClient, seconds: float, tasks: list[asyncio.Task[None]]) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and not failed(tasks):
        await world.start(client)
        await asyncio.sleep(0.2)


async def judge(world: World, books: list[Book]) -> None:
    """By a reader, once all is quiet."""
    async with Supervisor.open(world.state) as sup:
        lost, position = set(), 0
        while entries := await sup.feed(after=position, limit=1000):
            position = entries[-1].position
            lost |= {entry.run_id for entry in entries if entry.state is RunState.QUARANTINED}
        logs = {run: await gapless(sup, run) for run in {book.run for book in books}}
    went_without = 0
    for book in books:
        # A quarantined run may get better knowledge, or an operator's word, when its followers have left.
        excused = book.run in lost or not world.was_owned(book.ended - UNOWNED, book.ended + 1)
        events = [one for one in logs[book.run] if book.run not in lost or one.kind != Kind.RUN_RESOLVED]
        went_without += bool(book.judge(events, excused=excused))
    told = Counter(event.kind for events in logs.values() for event in events)
    print(f"{len(logs)} runs, {len(books)} followed to the end, {sum(len(one.seen) for one in books)} told")
    print(f"{world.done}; without an owner's word {went_without}; dropped {told[Kind.OUTPUT_DROPPED]}")
    tell_lags(world, [lag for book in books for lag in book.lags])


def tell_lags(world: World, lags: list[Lag]) -> None:
    """Of those who never rest, in calm moments: who was forgotten until the next event would show."""
    for reader in ("observer", "client"):
        mine = [lag for lag in lags if lag.what.startswith(reader)]
        calm = sorted(lag for lag in mine if world.was_calm(lag.told - lag.seconds - 1, lag.told))
        median = calm[len(calm) // 2].seconds * 1000 if calm else 0.0
        print(f"{reader}: {len(calm)} of {len(mine)} live in calm moments, late by {median:.1f} ms (median)")
        for lag in calm[-3:]:
            print(f"    {lag.seconds:.3f} s: {lag.what}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.lab.follow")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=30)
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="follow-"))
    try:
        asyncio.run(experiment(chosen.seed, chosen.seconds, folder))
    except BaseException:
        print(f"failed; seed {chosen.seed}; what it left: {folder}", flush=True)
        raise
    finally:
        reap_state_dir(folder / "state")
    with suppress(OSError):
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
