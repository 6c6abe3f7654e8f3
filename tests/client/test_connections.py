"""How connections are kept, shared, given up and ended."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path

import pytest

from durable_supervisor import AsyncClient, Client, Command, ErrorCode, SupervisorError
from durable_supervisor.server.server import Server
from tests.client.faces import Face, in_thread
from tests.client.raw import CONTROLLED, FEED, RUN, STREAM_HEAD, RawService, Visit, answer, chunk, event
from tests.contract.hosts import check_error, refused
from tests.support import PATIENCE, eventually_async


def sockets() -> int:
    """Of this process, by its descriptors."""
    names = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            names.append(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:
            continue
    return sum(name.startswith("socket:") for name in names)


async def feeds(visit: Visit) -> None:
    while True:
        await visit.request()
        await visit.say(answer(FEED))


async def test_one_connection_serves_call_after_call(state_dir: Path) -> None:
    async with RawService(state_dir, feeds).listening() as service, AsyncClient.connect(state_dir) as client:
        for _ in range(5):
            assert await client.feed() == []
        assert service.greetings == 1
        await asyncio.gather(*(client.feed() for _ in range(20)))
        greetings = service.greetings
        await asyncio.gather(*(client.feed() for _ in range(8)))
        assert service.greetings == greetings, "those were kept"


async def test_a_cancelled_call_gives_its_connection_up(state_dir: Path) -> None:
    """Half-read, its answer would be taken for the next call's."""
    asked = asyncio.Event()

    async def behave(visit: Visit) -> None:
        await visit.request()
        if visit.number == 0:
            asked.set()
            await visit.reader.read()  # until it is given up
        while True:
            await visit.say(answer(FEED))
            await visit.request()

    async with RawService(state_dir, behave).listening() as service, AsyncClient.connect(state_dir) as client:
        call = asyncio.ensure_future(client.feed())
        await asked.wait()
        before = sockets()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert sockets() == before - 1
        assert await client.feed() == []
        assert service.greetings == 2


async def test_leaving_a_stream_ends_its_connection(state_dir: Path) -> None:
    ended = asyncio.Event()

    async def behave(visit: Visit) -> None:
        await visit.request()
        await visit.say(STREAM_HEAD + chunk(event(1)))
        await visit.reader.read()
        ended.set()

    async with RawService(state_dir, behave).listening(), AsyncClient.connect(state_dir) as client:
        async with aclosing(client.follow(RUN)) as events:
            assert (await anext(events)).seq == 1
        await asyncio.wait_for(ended.wait(), PATIENCE)


async def test_an_answer_nobody_asked_for_is_not_the_next_calls(state_dir: Path) -> None:
    async def behave(visit: Visit) -> None:
        await visit.request()
        await visit.say(answer(FEED) + answer(CONTROLLED))
        await visit.request()

    async with RawService(state_dir, behave).listening() as service, AsyncClient.connect(state_dir) as client:
        assert await client.feed() == []
        service.behave = feeds
        assert await client.feed() == []
        assert service.greetings == 2


async def test_an_event_loop_is_never_held_up(state_dir: Path) -> None:
    """A stream faster than its follower: others get their turn."""
    flood = b"".join(chunk(event(seq)) for seq in range(1, 5001))

    async def behave(visit: Visit) -> None:
        await visit.request()
        await visit.say(STREAM_HEAD + flood)
        await visit.reader.read()

    async with RawService(state_dir, behave).listening(), AsyncClient.connect(state_dir) as client:
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.ensure_future(others())
        async with aclosing(client.follow(RUN)) as events:
            async for found in events:
                if found.seq == 5000:
                    break
        task.cancel()
        assert turns > 10


async def test_closing_leaves_nothing(face: Face) -> None:
    run = (await face.call("start", Command(argv=["sleep", "60"]))).id
    await asyncio.gather(*(face.call("feed") for _ in range(6)))
    await face.call("stop", run, grace=0.1)
    ours = len(face.client._connections._idle)
    before = sockets()
    assert ours > 0
    await face.close()
    await face.close()
    # The service's ends, in this same process, go when it has noticed.
    await eventually_async(lambda: sockets() <= before - ours)


async def test_threads_share_a_client(server: Server, state_dir: Path) -> None:
    def work() -> int:
        with Client.connect(state_dir) as client, ThreadPoolExecutor(8) as threads:

            def one(number: int) -> str:
                run = client.start(Command(argv=["sh", "-c", f"echo {number}"]), request_id=f"t{number}")
                seen = client.wait(run.id, timeout=PATIENCE)
                (text,) = [found.data for found in client.follow(run.id, kinds=["output"])]
                assert text == b"%d\n" % number
                return seen.id

            return len(set(threads.map(one, range(24))))

    assert await in_thread(work) == 24


async def test_a_forked_copy_refuses(server: Server, state_dir: Path) -> None:
    """And does not keep our connections open after our death."""
    client = await in_thread(lambda: Client.connect(state_dir))
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        word = b"?"
        try:
            client.inspect("0" * 16)
        except SupervisorError as error:
            word = error.code.value.encode()
        client.close()
        os.write(writing, b"%s %d" % (word, len(client._connections._idle)))
        signal.pause()
        os._exit(0)
    os.close(writing)
    told = await in_thread(lambda: os.read(reading, 100))
    os.close(reading)
    try:
        assert told == b"FORKED_COPY 1"
        assert (await in_thread(client.info)).pid == os.getpid()
        links = [link for link, _ in client._connections._idle]
        assert len(links) == 1
        inodes = {os.readlink(f"/proc/self/fd/{link._sock.fileno()}") for link in links}
        theirs = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
        assert not inodes & theirs
    finally:
        os.kill(pid, signal.SIGKILL)
        await in_thread(lambda: os.waitpid(pid, 0))
        client.close()


async def test_a_client_that_another_thread_closes(server: Server, state_dir: Path) -> None:
    """Whoever waits is told at once, and no descriptor is pulled away under it."""

    def work() -> SupervisorError:
        client = Client.connect(state_dir)
        run = client.start(Command(argv=["sleep", "60"])).id
        threading.Timer(0.2, client.close).start()
        with pytest.raises(SupervisorError) as caught:
            client.wait(run)
        return caught.value

    check_error(await asyncio.wait_for(in_thread(work), PATIENCE), ErrorCode.SUPERVISOR_CLOSED)


async def test_a_refusal_instead_of_a_websocket(server: Server, state_dir: Path) -> None:
    async with AsyncClient.connect(state_dir) as client:
        async with refused(ErrorCode.UNKNOWN_RUN), client._websocket(f"/v1/runs/{'0' * 16}/attach"):
            pass
        assert (await client.info()).phase == "accepting"


async def test_a_websocket_that_ends_without_a_goodbye(server: Server, state_dir: Path) -> None:
    async with AsyncClient.connect(state_dir) as client:
        run = await client.start(Command(argv=["cat"], stdin="open"))
        async with client._websocket(f"/v1/runs/{run.id}/attach?after=0") as websocket:
            websocket._link.hang_up()
            async with refused(ErrorCode.SERVICE_UNAVAILABLE):
                async for _ in websocket:
                    pass
        await client.stop(run.id, grace=0.1)
