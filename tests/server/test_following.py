"""Server-sent events: each once and in order, resumed exactly; a reader harms only itself."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from durable_supervisor import Command, Supervisor
from durable_supervisor.server.server import Server
from durable_supervisor.wire.documents import validate
from tests.server.http import Events, Http, Message, following, raw
from tests.support import PATIENCE, eventually_async
from tests.unit.runlog_helpers import work_of_this_process

TICKS = "i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo tick $i; sleep .01; done"
MANY = "i=0; while [ $i -lt 2500 ]; do i=$((i+1)); echo $i; echo $i >&2; done"
# Until there is a file: how many events its writes become is the worker's affair.
CHATTY = 'while [ ! -e "$1" ]; do echo x; echo y >&2; done; read x'


def ids(messages: list[Message]) -> list[int]:
    return [message.id for message in messages if message.id is not None]


async def start_open(http: Http, script: str) -> str:
    """With an open stdin, so that it ends when a test says so."""
    body = {"command": {"argv": ["sh", "-c", script], "stdin": "open"}, "limits": {"grace": 1}}
    answer = await http.post("/v1/start", body)
    assert answer.status == 201, answer
    return str(answer.json()["run_id"])


async def let_go(http: Http, run_id: str) -> None:
    octets = {"Content-Type": "application/octet-stream"}
    answer = await http.ask("POST", f"/v1/runs/{run_id}/write-stdin", b"x\n", octets)
    assert answer.status == 200, answer


async def test_from_the_beginning_to_the_end(http: Http, server: Server) -> None:
    run_id = await http.start("sh", "-c", TICKS)
    async with following(server.path, f"/v1/runs/{run_id}/follow") as events:
        messages = await events.all()
    assert ids(messages) == list(range(1, len(messages)))
    assert all(message.id == message.data["seq"] for message in messages[:-1])
    assert all(message.event == message.data["kind"] for message in messages[:-1])
    for message in messages[:-1]:
        validate("event", message.data)
    assert (messages[-1].event, messages[-1].id) == ("end", None)
    assert messages[-1].data == {"run_id": run_id, "state": "finished"}
    text = "".join(message.data.get("text", "") for message in messages)
    assert text.split("\n")[:-1] == [f"tick {n}" for n in range(1, 41)]


@pytest.mark.parametrize("header", [True, False])
async def test_it_resumes_exactly(http: Http, server: Server, header: bool) -> None:
    run_id = await http.start("sh", "-c", TICKS)
    found: list[Message] = []
    while not found or found[-1].event != "end":
        last = ids(found)[-1] if found else 0
        target = f"/v1/runs/{run_id}/follow" + ("?after=1" if header else f"?after={last}")
        headers = {"Last_Event_ID": str(last)} if header else {}
        async with following(server.path, target, **headers) as events:
            for _ in range(7):
                message = await events.next()
                if message is None:
                    break
                found.append(message)
    assert ids(found) == list(range(1, len(found)))


async def test_filters_keep_the_numbers(http: Http, server: Server) -> None:
    run_id = await http.start("sh", "-c", "echo a; echo b >&2")
    await http.wait(run_id)
    target = f"/v1/runs/{run_id}/follow?output=false&kind=program.exited&kind=output"
    async with following(server.path, target) as events:
        messages = await events.all()
    assert [message.event for message in messages] == ["program.exited", "end"]
    assert messages[0].id == messages[0].data["seq"] > 3


async def test_events_with_the_accept_header(http: Http, server: Server) -> None:
    run_id = await http.start("true")
    async with following(server.path, f"/v1/runs/{run_id}/events", Accept="text/event-stream") as events:
        assert (await events.all())[-1].event == "end"


async def test_the_head_comes_at_once_and_then_signs_of_life(http: Http, server: Server) -> None:
    run_id = await start_open(http, "read x")
    async with following(server.path, f"/v1/runs/{run_id}/follow?kind=run.finished") as events:
        waiting = asyncio.ensure_future(events.next())
        await eventually_async(lambda: events.comments >= 2)
        await let_go(http, run_id)
        assert await waiting is not None


async def test_the_feed_as_it_is_committed(http: Http, server: Server) -> None:
    async with following(server.path, "/v1/feed/follow") as events:
        run_id = await http.start("true")
        states: list[str] = []
        position = 0
        while "finished" not in states:
            message = await events.next()
            assert message is not None
            validate("feed", message.data)
            assert (message.event, message.id) == ("change", position + 1)
            position += 1
            assert message.data["run_id"] == run_id
            states.append(message.data["state"])
    assert states[0] == "starting"
    async with following(server.path, "/v1/feed", Accept="text/event-stream", Last_Event_ID="1") as events:
        message = await events.next()
        assert message is not None
        assert message.id == 2


async def test_a_follower_that_leaves_stops_nothing(http: Http, server: Server) -> None:
    run_id = await start_open(http, "echo here; read x; echo on")
    async with following(server.path, f"/v1/runs/{run_id}/follow") as events:
        await events.next()
    await let_go(http, run_id)
    assert (await http.wait(run_id))["outcome"]["code"] == 0


async def test_idle_followers_slow_no_other_call(http: Http, server: Server, tmp_path: Path) -> None:
    """Eight of a run with 5,000 events: while they wait they read nothing of its log, and hold no thread."""
    quiet = tmp_path / "quiet"
    argv = ["sh", "-c", CHATTY, "sh", str(quiet)]
    answer = await http.post("/v1/start", {"command": {"argv": argv, "stdin": "open"}})
    run_id = answer.json()["run_id"]

    async def head() -> int:
        return int((await http.get(f"/v1/runs/{run_id}/events?limit=1")).json()["head"])

    async def many() -> bool:
        return await head() >= 5000

    await eventually_async(many, timeout=60)
    quiet.touch()
    newest = await head()
    alone = await _read_by_calls(http)
    async with AsyncExitStack() as stack:
        followers: list[Events] = []
        for _ in range(8):
            opened = following(server.path, f"/v1/runs/{run_id}/follow")
            followers.append(await stack.enter_async_context(opened))
        await asyncio.gather(*(follower.skip_to(newest) for follower in followers))
        async with asyncio.timeout(60):
            beside = await _read_by_calls(http)
        await let_go(http, run_id)
        for follower in followers:
            assert (await follower.all())[-1].event == "end"
    assert beside < 2 * alone, "one look of each at the log, at each heartbeat, is several times as much"


async def _read_by_calls(http: Http) -> int:
    """Bytes that this process, which is the server's too, reads from files during 20 calls."""
    before = work_of_this_process()["rchar"]
    for _ in range(20):
        assert (await http.get("/v1/list")).status == 200
    return work_of_this_process()["rchar"] - before


async def test_a_follower_that_reads_nothing_is_dropped(sup: Supervisor) -> None:
    """It slows neither the program nor anybody else, costs no more than small buffers, and can come back."""
    server = Server(sup, stall=0.3)
    await server.start()
    http = Http(server.path)
    body = {"command": {"argv": ["sh", "-c", "head -c 100000000 /dev/zero"]}}
    run_id = (await http.post("/v1/start", body)).json()["run_id"]
    with raw(server.path) as stuck:
        stuck.sendall(f"GET /v1/runs/{run_id}/follow HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        over = await http.wait(run_id)
        assert over["outcome"]["code"] == 0
        stuck.setblocking(False)

        def dropped() -> bool:
            return server.waiting == server.connections == 0

        await eventually_async(dropped)
        got = bytearray()
        while True:
            try:
                data = stuck.recv(1 << 16)
            except ConnectionResetError:
                break
            if not data:
                break
            got += data
        assert len(got) < 4_000_000
    last = max(int(line[4:]) for line in bytes(got).split(b"\n") if line.startswith(b"id: "))
    async with following(server.path, f"/v1/runs/{run_id}/follow", Last_Event_ID=str(last)) as events:
        message = await events.next()
    assert message is not None
    first = message.data["detail"]["first_seq"] if message.event == "output.dropped" else message.id
    assert first == last + 1
    await server.close()


async def test_a_slow_follower_is_not_dropped(http: Http, server: Server) -> None:
    """As long as it takes something within the time that it has."""
    run_id = await http.start("sh", "-c", "head -c 3000000 /dev/zero")
    await http.wait(run_id)
    reader_bytes = 0
    async with following(server.path, f"/v1/runs/{run_id}/follow") as events:
        messages = []
        while (message := await events.next()) is not None:
            messages.append(message)
            reader_bytes += 1
            if reader_bytes % 20 == 0:
                await asyncio.sleep(0.02)  # the slowness is what is tested
    assert messages[-1].event == "end"


async def test_a_service_that_drains_breaks_no_message_off(http: Http, server: Server) -> None:
    """Its last word comes behind the message that a slow follower has got a part of."""
    run_id = await http.start("sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x")
    await http.wait(run_id)
    async with following(server.path, f"/v1/runs/{run_id}/follow") as events:
        messages = [message for message in [await events.next()] if message is not None]
        await eventually_async(lambda: server.waiting == 1)
        draining = asyncio.create_task(server.drain())
        messages += await events.all()
        await draining
    assert messages[-1].event == "bye"
    assert ids(messages) == list(range(1, len(messages)))
    whole = (await http.get(f"/v1/runs/{run_id}/events?limit=1000")).json()["events"]
    assert [message.data for message in messages[:-1]] == whole[: len(messages) - 1]
    assert len(messages) <= len(whole)


async def test_followers_are_sent_away_when_the_service_drains(http: Http, server: Server) -> None:
    run_id = await start_open(http, "read x")
    async with (
        following(server.path, f"/v1/runs/{run_id}/follow") as events,
        following(server.path, "/v1/feed/follow?after=100") as feed,
    ):
        waiting = asyncio.ensure_future(http.get(f"/v1/runs/{run_id}/wait"))
        await events.next()
        await eventually_async(lambda: server.waiting == 3)
        await server.drain()
        assert (await events.all())[-1].event == "bye"
        assert [message.event for message in await feed.all()] == ["bye"]
        answer = await waiting
    assert (answer.status, answer.code) == (503, "SHUTTING_DOWN")
    assert answer.headers["retry-after"] == "1"
    refused = await http.post("/v1/start", {"command": {"argv": ["true"]}, "request_id": "later"})
    assert (refused.status, refused.code) == (503, "SHUTTING_DOWN")
    assert refused.json()["error"]["retryable"]
    assert (await http.get("/v1/info")).json()["phase"] == "draining"
    await let_go(http, run_id)  # everything else goes on
    assert (await http.get("/v1/list?state=finished")).status == 200


async def test_closing_sends_followers_away(sup: Supervisor) -> None:
    server = Server(sup)
    await server.start()
    http = Http(server.path)
    run_id = await start_open(http, "read x")
    async with following(server.path, f"/v1/runs/{run_id}/follow") as events:
        await events.next()
        closing = asyncio.ensure_future(server.close(drain=10))
        assert (await events.all())[-1].event == "bye"
        await closing
    assert not os.path.exists(server.path)
    await sup.stop(run_id, grace=0)


async def test_a_finished_run_with_many_events(http: Http, server: Server) -> None:
    run_id = await http.start("sh", "-c", MANY)
    await http.wait(run_id)
    async with following(server.path, f"/v1/runs/{run_id}/follow") as events:
        messages = await events.all()
    numbers = ids(messages)
    assert numbers == list(range(1, len(messages)))
    lines: dict[Any, list[str]] = {"stdout": [], "stderr": []}
    for message in messages:
        if message.event == "output":
            lines[message.data["stream"]] += message.data["text"].split()
    assert lines["stdout"] == lines["stderr"] == [str(n) for n in range(1, 2501)]
    assert json.loads(json.dumps(messages[-1].data))["state"] == "finished"


async def test_all_followers_of_a_run_share_one_line_to_its_worker(sup: Supervisor) -> None:
    """A worker takes only so many; and each of them is woken all the same."""
    run = await sup.start(Command(argv=["sh", "-c", "read x; echo $x"], stdin="open"))
    before = len(os.listdir("/proc/self/fd"))
    seen: list[list[int]] = [[] for _ in range(200)]

    async def read(numbers: list[int]) -> None:
        async for event in sup.follow(run.id):
            numbers.append(event.seq)

    readers = [asyncio.ensure_future(read(numbers)) for numbers in seen]
    await eventually_async(lambda: all(len(numbers) >= 3 for numbers in seen))
    assert len(os.listdir("/proc/self/fd")) < before + 50  # some are a log that is being read just now
    await sup.write_stdin(run.id, b"go\n")
    await asyncio.wait_for(asyncio.gather(*readers), PATIENCE)
    head = (await sup.inspect(run.id)).head
    assert all(numbers == list(range(1, head + 1)) for numbers in seen)
