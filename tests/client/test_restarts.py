"""kill -9 of the service under its clients, again and again: nothing comes twice, is lost, or runs twice.

``LOAD_TESTS_FULL=1`` makes it 20 runs with 20 followers each.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from durable_supervisor import (
    AsyncClient,
    Command,
    ErrorCode,
    Kind,
    Observer,
    RunState,
    Supervisor,
    SupervisorError,
)
from durable_supervisor.server.server import Server
from tests.client.faces import AsyncFace, Face, SyncFace
from tests.contract.hosts import HostScript
from tests.contract.runs import check_gapless
from tests.support import PATIENCE, eventually_async

FULL = os.environ.get("LOAD_TESTS_FULL") == "1"

HOST = """
from durable_supervisor.server.server import Server
async with Supervisor.open(STATE, wait=20) as sup:
    server = Server(sup, max_connections=1024)
    await server.start()
    report(pid=os.getpid())
    await asyncio.Event().wait()
"""

COUNTING = "i=0; while [ $i -lt {lines} ]; do i=$((i+1)); echo $i; sleep 0.01; done"

WORDS = {ErrorCode.SUBMISSION_INDETERMINATE: "doubt", ErrorCode.SERVICE_UNAVAILABLE: "not"}


class Service:
    """A service in a process of its own, to be killed."""

    def __init__(self, state_dir: Path, folder: Path) -> None:
        self._paths = (state_dir, folder)
        self._host: HostScript | None = None

    async def start(self) -> None:
        self._host = HostScript(HOST, *self._paths)
        await asyncio.to_thread(self._host.facts)

    def kill(self) -> None:
        if self._host is not None:
            self._host.kill()

    async def restart(self) -> None:
        self.kill()
        await self.start()


@asynccontextmanager
async def service(state_dir: Path, folder: Path) -> AsyncIterator[Service]:
    made = Service(state_dir, folder)
    await made.start()
    try:
        yield made
    finally:
        made.kill()


async def followed(face: Face, run: str) -> list[Any]:
    return [event async for event in face.stream("follow", run)]


async def goes_on(state_dir: Path, run: str) -> None:
    """Return once the run has printed some more, or is over."""
    async with Observer.open(state_dir) as observer:
        before = (await observer.inspect(run)).head

        async def more() -> bool:
            seen = await observer.inspect(run)
            return seen.head > before + 10 or seen.state is RunState.FINISHED

        await eventually_async(more)


def check_whole(events: list[Any], lines: int) -> None:
    check_gapless(events)
    assert events[-1].kind == Kind.RUN_FINISHED
    text = b"".join(event.data for event in events if event.kind == Kind.OUTPUT)
    assert text.split() == [b"%d" % number for number in range(1, lines + 1)]


async def test_followers_and_waiters_outlive_their_service(state_dir: Path, tmp_path: Path) -> None:
    """Killed twice under 20 live runs; every follower sees each seq once, to the end."""
    count, each, lines = 20, 20 if FULL else 1, 300 if FULL else 120
    async with service(state_dir, tmp_path) as host:
        faces: list[Face] = [await AsyncFace.connect(state_dir), await SyncFace.connect(state_dir)]
        command = Command(argv=["sh", "-c", COUNTING.format(lines=lines)])
        runs = [(await faces[0].call("start", command)).id for _ in range(count)]
        following = [
            asyncio.ensure_future(followed(faces[(number + copy) % 2], run))
            for number, run in enumerate(runs)
            for copy in range(each)
        ]
        waiting = [asyncio.ensure_future(faces[0].call("wait", run, timeout=100)) for run in runs[:4]]
        for _ in range(2):
            await goes_on(state_dir, runs[-1])
            await host.restart()
        for events in await asyncio.wait_for(asyncio.gather(*following), 100):
            check_whole(events, lines)
        for seen in await asyncio.wait_for(asyncio.gather(*waiting), 60):
            assert seen.outcome.code == 0
        for face in faces:
            await face.close()


@pytest.mark.parametrize("kind", [AsyncFace, SyncFace])
async def test_a_reader_that_is_waited_for(
    state_dir: Path, tmp_path: Path, kind: type[AsyncFace | SyncFace]
) -> None:
    """Its program stands still until it has told how far it is: that waits for the next service."""
    command, window, size = Command(argv=["head", "-c", "200000", "/dev/zero"]), 8192, 200_000
    async with service(state_dir, tmp_path) as made:
        face = await kind.connect(state_dir)
        run = await face.call("start", command, lifetime="scope", window=window)
        consumed, coming = 0, None
        async for event in face.stream("follow", run.id, kinds=[Kind.OUTPUT]):
            consumed += len(event.data)
            if coming is None and consumed >= 3 * window:
                made.kill()
                coming = asyncio.create_task(made.start())
            await face.call("acknowledge", run.id, stdout=consumed)
        assert coming is not None
        await coming
        await face.close()
    assert consumed == size


async def test_starts_ride_over_restarts_and_run_once(state_dir: Path, tmp_path: Path) -> None:
    """Whatever moment the service dies in, each request id has run exactly once, and its answer came."""
    ran, count = tmp_path / "ran", 12
    async with service(state_dir, tmp_path) as host, await AsyncClient.connect(state_dir) as client:

        async def starter(lane: int) -> None:
            for number in range(count):
                name = f"{lane}.{number}"
                command = Command(argv=["sh", "-c", f"echo {name} >> {ran}"])
                run = await client.start(command, request_id=name)
                await client.wait(run.id, timeout=60)

        def done() -> int:
            return len(ran.read_text().split()) if ran.exists() else 0

        async def further() -> None:
            enough = done() + 4
            await eventually_async(lambda: starting.done() or done() >= enough)

        starting = asyncio.gather(*(starter(lane) for lane in range(4)))
        for _ in range(3):
            await further()
            await host.restart()
        await asyncio.wait_for(starting, 100)
    expected = sorted(f"{lane}.{number}" for lane in range(4) for number in range(count))
    assert sorted(ran.read_text().split()) == expected


async def test_deeds_on_a_dying_service_are_told_truly(state_dir: Path, tmp_path: Path) -> None:
    """Each write has its receipt, or is in doubt, or was not sent; what is in doubt came once or never."""
    async with service(state_dir, tmp_path) as host, await AsyncClient.connect(state_dir) as client:
        run = await client.start(Command(argv=["cat"], stdin="open"))
        told: dict[str, list[bytes]] = {"sure": [], "doubt": [], "not": []}

        async def write(number: int) -> None:
            line = b"%d\n" % number
            try:
                await client.write_stdin(run.id, line)
            except SupervisorError as error:
                told[WORDS[error.code]].append(line)  # any other code is a KeyError
                await asyncio.sleep(0.02)
            else:
                told["sure"].append(line)

        async def writer() -> None:
            for number in range(400):
                await write(number)

        async def further() -> None:
            enough = len(told["sure"]) + 20
            await eventually_async(lambda: writing.done() or len(told["sure"]) >= enough)

        writing = asyncio.ensure_future(writer())
        for _ in range(2):
            await further()
            await host.restart()
        await asyncio.wait_for(writing, 60)
        await client.write_stdin(run.id, b"", eof=True)
        await client.wait(run.id, timeout=PATIENCE)
        text = b"".join([event.data async for event in client.follow(run.id, kinds=[Kind.OUTPUT])])
        lines = text.splitlines(keepends=True)
    assert len(lines) == len(set(lines)), "nothing came twice"
    assert set(told["sure"]) <= set(lines)
    assert not set(told["not"]) & set(lines)
    assert set(lines) <= {*told["sure"], *told["doubt"]}
    assert len(told["sure"]) > 20


async def test_a_service_that_leaves_in_good_order(state_dir: Path, sup: Supervisor) -> None:
    """Drained and closed under who follows and waits, while another start comes in; the next one goes on."""
    first, second = Server(sup), Server(sup)
    await first.start()
    face: Face = await AsyncFace.connect(state_dir)
    run = (await face.call("start", Command(argv=["sh", "-c", COUNTING.format(lines=100)]))).id
    following = asyncio.ensure_future(followed(face, run))
    waiting = asyncio.ensure_future(face.call("wait", run, timeout=60))
    await goes_on(state_dir, run)
    await first.drain()
    starting = asyncio.ensure_future(face.call("start", Command(argv=["true"]), request_id="meanwhile"))
    await first.close(drain=0.2)
    await second.start()
    assert (await asyncio.wait_for(starting, PATIENCE)).admission == "new"
    check_whole(await asyncio.wait_for(following, PATIENCE), 100)
    assert (await asyncio.wait_for(waiting, PATIENCE)).outcome.code == 0
    await face.close()
    await second.close(drain=0)
