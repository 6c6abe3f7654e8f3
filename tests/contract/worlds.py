"""Requests and their runs, for tests that take the journal away from under them."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from durable_supervisor import (
    Command,
    ErrorCode,
    Limits,
    Observer,
    RunState,
    Supervisor,
)
from tests.contract.hosts import kill_run, refused
from tests.contract.runs import Marker
from tests.support import PATIENCE, eventually

JOURNAL = ("journal.db", "journal.db-wal", "journal.db-shm")


class World:
    """Requests whose programs write down each execution, and what became of them."""

    def __init__(self, state_dir: Path, marker: Marker) -> None:
        self.state_dir = state_dir
        self.ledger = state_dir.parent / "ledger"
        self.marker = marker
        self.ids: dict[str, str] = {}

    def command(self, request_id: str) -> Command:
        body = {
            "ended": "exit 7",
            "live": f"exec sleep {self.marker}",
            "live2": f"exec sleep {self.marker}",
            "killed": f"exec sleep {self.marker}",
        }
        if request_id == "missing":
            return Command(argv=["/no/such/program"])
        script = f'echo {request_id} >> "$1"; {body.get(request_id, "exit 0")}'
        return Command(
            argv=["sh", "-c", script, "sh", str(self.ledger)], env={"GIVEN": "value-of-" + request_id}
        )

    async def send(self, sup: Supervisor, request_id: str) -> Any:
        limits = Limits(timeout=600, grace=2)
        run = await sup.start(
            self.command(request_id), request_id=request_id, limits=limits, labels={"made": "here"}
        )
        self.ids.setdefault(request_id, run.id)
        return run

    def executed(self, request_id: str) -> int:
        return self.ledger.read_text().split().count(request_id)


@asynccontextmanager
async def a_world(state_dir: Path, marker: Marker) -> AsyncIterator[World]:
    """An ended run, a live one, one whose worker was killed, one that never started; no owner is left."""
    world = World(state_dir, marker)
    async with Supervisor.open(state_dir) as sup:
        for request_id in ("ended", "live", "killed", "missing"):
            await world.send(sup, request_id)
        await sup.wait(world.ids["ended"], timeout=PATIENCE)
        killed = await sup.inspect(world.ids["killed"])
        eventually(lambda: len(world.ledger.read_text().split()) == 3)
    await kill_run(killed)
    yield world


def set_aside(state_dir: Path, to: Path) -> None:
    to.mkdir()
    for name in JOURNAL:
        if (state_dir / name).exists():
            shutil.copy(state_dir / name, to / name)


def remove_journal(state_dir: Path) -> None:
    for name in JOURNAL:
        (state_dir / name).unlink(missing_ok=True)


async def check_readable(world: World) -> None:
    """Without a usable journal: everything can be looked at, and live runs controlled."""
    async with Observer.open(world.state_dir) as seen:
        listed = {view.request_id: view for view in (await seen.list()).runs}
        assert set(world.ids) <= set(listed)
        ended = await seen.inspect(world.ids["ended"])
        assert (ended.state, ended.outcome and ended.outcome.code) == (RunState.FINISHED, 7)
        assert (await seen.inspect(world.ids["live"])).state is RunState.RUNNING
        assert (await seen.inspect(world.ids["killed"])).state is RunState.UNKNOWN
        assert (await seen.inspect(world.ids["missing"])).state is RunState.NOT_STARTED
        page = await seen.events(world.ids["ended"])
        assert page.end
        follower = [event async for event in seen.follow(world.ids["ended"])]
        assert follower == page.events
        final = await seen.wait(world.ids["ended"], timeout=PATIENCE)
        assert final.receipt == ended.receipt


async def check_recovered(world: World, report: dict[str, object]) -> None:
    """Each id answers with its run; nothing was executed again."""
    assert report["conflicts"] == []
    async with Supervisor.open(world.state_dir) as sup:
        for request_id, run_id in world.ids.items():
            if request_id == "missing":
                continue
            again = await world.send(sup, request_id)
            assert (again.id, again.admission, again.attempt) == (run_id, "existing", 1), request_id
            assert world.executed(request_id) == 1
        async with refused(ErrorCode.IDEMPOTENCY_CONFLICT):
            await sup.start(Command(argv=["echo"]), request_id="ended")
        states = {view.request_id: view for view in (await sup.list()).runs}
        assert states["ended"].state is RunState.FINISHED
        assert states["live"].state is RunState.RUNNING
        assert states["killed"].state is RunState.UNKNOWN
        assert states["ended"].labels == {"made": "here"}
        assert states["live"].limits["timeout"] == 600
        # What provably never ran is tried again, as the second attempt of the same run.
        retried = await world.send(sup, "missing")
        assert (retried.id, retried.attempt, retried.state) == (world.ids["missing"], 2, RunState.NOT_STARTED)
        fresh = await world.send(sup, "fresh")
        await sup.wait(fresh.id, timeout=PATIENCE)
        assert fresh.id not in list(world.ids.values())[:-1]
        stopped = await sup.stop(world.ids["live"])
        assert stopped.confirmed
        page = await sup.events(world.ids["live"], limit=1000)
        assert [event.seq for event in page.events] == list(range(1, len(page.events) + 1))
        assert page.end
        feed = await sup.feed(limit=1000)
        assert [entry.position for entry in feed] == sorted({entry.position for entry in feed})
