"""Many connections, slow ones, idle ones: nobody can lock anybody out."""

from __future__ import annotations

import asyncio
import itertools
import os
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager

import pytest
import pytest_asyncio

from durable_supervisor import Supervisor, SupervisorError
from durable_supervisor.server.requests.peers import Caller, callers_by_uid
from durable_supervisor.server.server import Server
from durable_supervisor.server.service.metrics import Metrics
from durable_supervisor.server.service.service import Service
from durable_supervisor.server.sockets.connections import Held, decide
from tests.server.http import Http, connected, dial, following, raw
from tests.support import eventually_async

INFO = b"GET /v1/info HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest_asyncio.fixture
async def small(sup: Supervisor) -> AsyncIterator[Server]:
    """A service that takes eight connections, six of which may stay."""
    made = Server(sup, max_connections=8)
    await made.start()
    yield made
    await made.close(drain=1)


async def served(server: Server) -> bool:
    return (await Http(server.path).get("/v1/info")).status == 200


def test_there_is_room() -> None:
    assert decide([Held(1, None)] * 3, 1, most=4, share=4) == "admit"


def test_the_longest_idle_goes() -> None:
    old, young, busy = Held(1, 5.0), Held(2, 6.0), Held(1, None)
    assert decide([young, busy, old], 3, most=3, share=3) is old


def test_nobody_idle() -> None:
    assert decide([Held(1, None), Held(2, None)], 3, most=2, share=2) == "refuse"


def test_who_has_a_share_makes_room_from_it() -> None:
    own, other = Held(1, 9.0), Held(2, 1.0)
    assert decide([own, other, Held(1, None)], 1, most=9, share=2) is own
    assert decide([Held(1, None), Held(1, None), other], 1, most=9, share=2) == "refuse"
    assert decide([Held(1, None), Held(1, None), other], 2, most=9, share=2) == "admit"


async def test_idle_connections_lock_nobody_out(small: Server) -> None:
    idle = [await dial(small.path) for _ in range(32)]
    try:
        for _ in range(10):  # each may come while those who are left are too young to be idle
            await eventually_async(lambda: served(small))
        await eventually_async(lambda: sum(reader.at_eof() for reader, _ in idle) >= 1)
    finally:
        for _, writer in idle:
            writer.close()


async def test_the_bound_holds_for_those_who_come_at_once(small: Server) -> None:
    """All of them have connected before the service's loop gets to look at the first."""
    crowd = [raw(small.path) for _ in range(100)]
    await eventually_async(lambda: small.connections > 0)
    for _ in range(20):
        assert small.connections <= 8
        await asyncio.sleep(0)
    for one in crowd:
        one.close()
    await eventually_async(lambda: served(small))


def test_one_of_several_users_gets_a_share(sup: Supervisor) -> None:
    def made(*callers: Caller) -> Service:
        return Service(sup, callers_by_uid(os.geteuid(), callers), 16, Metrics(sup))

    def places(service: Service, uid: int, stack: ExitStack) -> int:
        """How many calls of this user may stay."""
        for number in itertools.count():
            try:
                stack.enter_context(service.place_to_wait(uid))
            except SupervisorError:
                return number
        raise AssertionError

    alone, shared = made(Caller(os.geteuid())), made(Caller(65001))
    assert made().max_of_one_user == alone.max_of_one_user == 16
    assert shared.max_of_one_user == made(Caller(65001), Caller(65002)).max_of_one_user == 12
    with ExitStack() as stack:
        assert places(alone, os.geteuid(), stack) == 12
        assert places(shared, 65001, stack) == 9
        assert places(shared, os.geteuid(), stack) == 3
    assert alone.waiting == shared.waiting == 0


async def test_the_default_keeps_32_idle_ones(http: Http, server: Server) -> None:
    idle = [await dial(server.path) for _ in range(32)]
    assert (await http.get("/v1/info")).status == 200
    for reader, writer in idle:
        writer.write(INFO)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_who_never_ends_its_headers_goes_first(small: Server) -> None:
    slow = [await dial(small.path) for _ in range(8)]
    for _, writer in slow:
        writer.write(b"GET /v1/info HTTP/1.1\r\nHost: ")
    await eventually_async(lambda: served(small))
    for _, writer in slow:
        writer.close()


async def test_followers_leave_room_for_others(small: Server) -> None:
    """Three quarters may stay; one more is told so, and short calls still get in."""
    opened = [following(small.path, "/v1/feed/follow?after=1000") for _ in range(6)]
    for one in opened:
        await one.__aenter__()
    await eventually_async(lambda: small.waiting == 6)
    http = Http(small.path)
    refused = await http.get("/v1/feed/follow")
    assert (refused.status, refused.code) == (503, "BUSY")
    assert refused.headers["retry-after"] == "1"
    assert refused.json()["error"]["retryable"]
    assert (await http.get("/v1/info")).status == 200
    for one in opened:
        await one.__aexit__(None, None, None)
    await eventually_async(lambda: small.waiting == 0)


async def test_when_everybody_is_at_work_a_new_one_is_told_so(small: Server) -> None:
    run = (await Http(small.path).post("/v1/start", {"command": {"argv": ["sleep", "60"]}})).json()["run_id"]
    busy = []

    async def refused() -> bool:
        reader, writer = await dial(small.path)
        busy.append((reader, writer))
        writer.write(f"POST /v1/runs/{run}/stop HTTP/1.1\r\nHost: x\r\n".encode())
        writer.write(b"Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{")  # it never comes
        answer = await Http(small.path).get("/v1/info")
        return answer.status == 503 and answer.code == "BUSY" and answer.headers["retry-after"] == "1"

    await eventually_async(refused)
    assert len(busy) >= 8
    busy[0][1].close()
    await eventually_async(lambda: served(small))
    for _, writer in busy:
        writer.close()
    await eventually_async(lambda: served(small))
    await Http(small.path).post(f"/v1/runs/{run}/stop", {"grace": 0})


async def test_a_thousand_connections(sup: Supervisor) -> None:
    """Open, half of them in the middle of a request, and the service answers as before."""
    server = Server(sup, max_connections=1200)
    await server.start()
    others = []
    for number in range(1000):
        one = raw(server.path)
        others.append(one)
        if number % 2:
            one.sendall(INFO[:20])
        if number % 50 == 0:
            await asyncio.sleep(0)  # they are made in the loop that has to accept them
    http = Http(server.path)
    for _ in range(20):
        assert (await http.get("/v1/info")).status == 200
    for one in others:
        one.close()
    assert (await http.get("/v1/info")).status == 200
    await server.close(drain=1)


async def test_who_does_not_take_its_answer_is_dropped(sup: Supervisor) -> None:
    """Or a few hundred of them would hold gigabytes, and all places."""
    server = Server(sup, stall=0.2)
    await server.start()
    http = Http(server.path)
    run_id = await http.start("head", "-c", "3000000", "/dev/zero")
    await http.wait(run_id)
    with raw(server.path) as stuck:
        stuck.sendall(f"GET /v1/runs/{run_id}/events?limit=1000 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        await eventually_async(lambda: server.connections == 1)
        await eventually_async(lambda: server.connections == 0)
        assert stuck.recv(15) == b"HTTP/1.1 200 OK"
    async with connected(server.path) as slow:  # taking a little is enough
        await slow.request("GET", f"/v1/runs/{run_id}/events?limit=1000")
        head = await slow.event()
        size = int(dict(head.headers)[b"content-length"])
        got, pieces = 0, 0
        while got < size:
            got += len((await slow.event()).data)
            pieces += 1
            if pieces % 20 == 0:
                await asyncio.sleep(0.05)  # the slowness is what is tested
    await server.close()


@contextmanager
def descriptors(limit: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_out_of_descriptors(http: Http, server: Server) -> None:
    """The loop does not spin, an idle connection makes room, and everything goes on afterwards."""
    idle = [await dial(server.path) for _ in range(8)]
    spare = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(4)]
    top = max(int(name) for name in os.listdir("/proc/self/fd")) + 1
    with descriptors(top):
        holes = []
        while True:
            try:
                holes.append(os.dup(0))
            except OSError:
                break
        before = os.times()
        for one in spare:
            one.setblocking(False)
            one.connect_ex(server.path)
        await asyncio.sleep(0.5)  # long enough to see a loop that spins
        used = os.times().user + os.times().system - before.user - before.system
        assert used < 0.4
        for hole in holes:
            os.close(hole)
    for one in spare:
        one.close()
    for _, writer in idle:
        writer.close()
    assert (await http.get("/v1/info")).status == 200


async def test_one_connection_for_many_requests(http: Http, server: Server) -> None:
    async with connected(server.path) as wire:
        for target in ("/v1/info", "/v1/nowhere", "/v1/list", "/v1/runs/abc/inspect", "/v1/info"):
            await wire.request("GET", target)
            assert (await wire.answer()).status in (200, 404)


async def test_pipelined_requests_are_answered_in_order(server: Server) -> None:
    reader, writer = await dial(server.path)
    writer.write(INFO * 50)
    for _ in range(50):
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        await reader.readuntil(b"}\n")
    writer.close()


async def test_the_host_header_means_nothing(http: Http) -> None:
    for host in ("evil.example", "", "a" * 300):
        assert (await http.get("/v1/info", Host=host)).status == 200


@pytest.mark.parametrize("most", [0, 3, -1, True, 1.5])
async def test_limits_that_cannot_be(sup: Supervisor, most: int) -> None:
    with pytest.raises(SupervisorError, match="max_connections"):
        Server(sup, max_connections=most)
