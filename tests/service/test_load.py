"""Writers and pagers at work while the service is restarted under them: nothing is lost, nobody meets a lock.

``CRASH_TESTS_FULL=1`` runs it for as long as a person would.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from durable_supervisor import Command, ErrorCode, RunState, SupervisorError
from durable_supervisor.client.aio import AsyncClient
from tests.service.daemons import PATIENCE, Service
from tests.support import eventually_async

T = TypeVar("T")

FULL = os.environ.get("CRASH_TESTS_FULL") == "1"
SECONDS = 30.0 if FULL else 2.0
EACH = 8 if FULL else 4  # writers, and pagers
AWAY = {ErrorCode.SERVICE_UNAVAILABLE, ErrorCode.SUPERVISOR_CLOSED, ErrorCode.SHUTTING_DOWN}


class Work:
    """What all of them have done; an error of any of them ends the test."""

    def __init__(self, state_dir: Path, ran: Path) -> None:
        self.state_dir = state_dir
        self.ran = ran
        self.until = time.monotonic() + SECONDS
        self.runs: dict[str, str] = {}
        self.pages = 0

    async def write(self, lane: int) -> None:
        async with await AsyncClient.connect(self.state_dir, reconnect=PATIENCE) as client:
            while time.monotonic() < self.until:
                name = f"{lane}.{len(self.runs)}"
                command = Command(argv=["sh", "-c", f"echo {name} >> {self.ran}; echo {name}"])
                run = await client.start(command, request_id=name)
                self.runs[name] = run.id
                assert (await client.wait(run.id, timeout=PATIENCE)).state is RunState.FINISHED

    async def page(self) -> None:
        async with await AsyncClient.connect(self.state_dir, reconnect=PATIENCE) as client:
            while time.monotonic() < self.until:
                before: int | None = None
                for _ in range(20):
                    found = await _patiently(partial(client.list, limit=20, before=before))
                    if not found.runs:
                        break
                    await _patiently(partial(client.events, found.runs[0].id, limit=7))
                    self.pages += 1
                    before = found.next_before


async def _patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """A read is asked once more by the client; a restart may take longer than that."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return await ask()
        except SupervisorError as error:
            if error.code not in AWAY or time.monotonic() > deadline:
                raise
        await asyncio.sleep(0.02)


async def test_restarts_under_load_lose_nothing(state_dir: Path, tmp_path: Path) -> None:
    services = [await asyncio.to_thread(Service(state_dir).ready)]
    work = Work(state_dir, tmp_path / "ran")
    try:
        lanes = [work.write(lane) for lane in range(EACH)] + [work.page() for _ in range(EACH)]
        working = asyncio.gather(*lanes)
        for part, signo in ((1, signal.SIGTERM), (2, signal.SIGKILL)):
            moment = work.until - SECONDS * (1 - part / 3)
            await eventually_async(lambda: time.monotonic() > moment or working.done(), SECONDS)  # noqa: B023
            code = await asyncio.to_thread(services[-1].end, signo)
            assert code == (0 if signo == signal.SIGTERM else -signo), services[-1].log()
            services.append(await asyncio.to_thread(Service(state_dir).ready))
        await asyncio.wait_for(working, SECONDS + 2 * PATIENCE)
        async with await AsyncClient.connect(state_dir) as client:
            for name, run in list(work.runs.items())[:: 1 if not FULL else 10]:
                page = await client.events(run, limit=1000)
                assert [event.seq for event in page.events] == list(range(1, page.head + 1))
                assert (await client.inspect(run)).request_id == name
    finally:
        for service in services:
            service.kill()
    assert sorted(work.ran.read_text().split()) == sorted(work.runs), "each request once, none lost"
    assert work.pages > 0
    for service in services:
        assert "locked" not in service.log()
        assert not service.entries("request_failed")
