"""The WebSocket of a viewer, spoken to by another's client."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import shlex
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from durable_supervisor import Kind
from durable_supervisor.model.terminal import Terminal
from durable_supervisor.server.requests.peers import Caller
from tests.attach.sockets import Service, Viewer, serving
from tests.contract.runs import Runs
from tests.support import eventually_async

PTY = Terminal(columns=100, rows=30)


@pytest_asyncio.fixture
async def service(runs: Runs) -> AsyncIterator[Service]:
    async with serving(runs.sup) as served:
        yield served


async def regained(viewer: Viewer) -> None:
    """Whoever had the input has gone, as the worker is about to see."""

    async def held() -> bool:
        return (await viewer.ask("lease"))["held"] is True

    await eventually_async(held)


async def test_events_from_a_cursor_then_the_end(runs: Runs, service: Service) -> None:
    run = await runs.sh("echo one; read line; echo two", stdin="open")
    async with service.viewer(run.id) as first:
        assert await first.read() == {"type": "lease", "held": False, "result": "none"}
        await first.printed("one\n")
        seq = first.events[-1]["seq"]
        receipt = await first.type("go\n")
        assert (receipt["type"], receipt["op"], receipt["result"]) == ("receipt", "stdin", "written")
        assert (receipt["run_id"], receipt["bytes"]) == (run.id, 3)
        assert (await first.rest())[-1] == {"type": "end", "state": "finished"}
        assert first.socket.close_code == 1000
    assert [event["seq"] for event in first.events] == list(range(1, first.events[-1]["seq"] + 1))
    assert first.events == [event.to_dict() for event in await runs.events(run)]
    async with service.viewer(run.id[:10], after=seq) as second:
        await second.rest()
    assert second.events == [event for event in first.events if event["seq"] > seq]


async def test_input_has_one_writer(runs: Runs, service: Service) -> None:
    run = await runs.sh("trap 'stty size' WINCH; stty size; cat", pty=PTY)
    async with service.viewer(run.id, writer="ask", columns=90, rows=20) as first:
        assert (await first.until(type="lease"))["result"] == "granted"
        async with service.viewer(run.id, writer="ask") as second:
            assert (await second.until(type="lease"))["result"] == "held"
            assert (await second.type("never\n"))["error"]["code"] == "WRITER_BUSY"
            assert (await second.ask("resize", columns=10, rows=10))["error"]["code"] == "WRITER_BUSY"
            assert (await second.ask("lease"))["held"] is False
            stolen = await second.ask("lease", steal=True)
            assert (stolen["held"], stolen["result"]) == (True, "granted")
            assert await first.until(type="lease") == {"type": "lease", "held": False, "result": "lost"}
            await second.type("mine\n")
            await first.printed("mine")
            resized = await second.ask("resize", columns=132, rows=43)
            assert (resized["op"], resized["columns"], resized["rows"]) == ("resize", 132, 43)
        await regained(first)
        assert (await first.ask("eof"))["type"] == "receipt"
        await first.rest()
    applied = [event.detail for event in await runs.events(run, kinds={Kind.CONTROL_APPLIED})]
    sizes = [(one["columns"], one["rows"]) for one in applied if one["result"] == "resized"]
    assert sizes == [(90, 20), (132, 43)]
    assert "never" not in first.output


async def test_a_viewer_that_vanishes_frees_the_input(runs: Runs, service: Service) -> None:
    run = await runs.sh("cat", pty=PTY)
    async with service.viewer(run.id, writer="ask") as gone:
        assert (await gone.until(type="lease"))["held"] is True
        gone.vanish()
        async with service.viewer(run.id) as other:
            await regained(other)
            await other.type("free\n")
            await other.printed("free")


async def test_a_run_that_is_over_takes_nothing(runs: Runs, service: Service) -> None:
    run = await runs.sh("echo done")
    await runs.wait(run)
    async with service.viewer(run.id, writer="ask", events=False) as viewer:
        assert (await viewer.until(type="error"))["error"]["code"] == "NOT_RUNNING"
        assert (await viewer.type("x"))["error"]["code"] == "NOT_RUNNING"
        assert viewer.events == []


BAD = {
    "no JSON": ("{", "body"),
    "nothing": ("", "body"),
    "a list": ("[]", "body"),
    "no type": ('{"id": "a"}', "body"),
    "another type": ('{"type": "exec", "id": "a"}', "body"),
    "no id": ('{"type": "eof"}', "id"),
    "an empty id": ('{"type": "eof", "id": ""}', "id"),
    "a long id": (json.dumps({"type": "eof", "id": "x" * 129}), "id"),
    "a misspelt field": ('{"type": "lease", "id": "a", "steel": true}', "steel"),
    "the wrong type": ('{"type": "lease", "id": "a", "steal": "yes"}', "steal"),
    "no base64": ('{"type": "stdin", "id": "a", "base64": "!"}', "base64"),
    "no size": ('{"type": "resize", "id": "a", "columns": 0, "rows": 24}', "columns"),
    "a huge size": ('{"type": "resize", "id": "a", "columns": 80, "rows": 65536}', "rows"),
    "a key twice": ('{"type": "eof", "id": "a", "id": "b"}', "id"),
    "not a number": ('{"type": "resize", "id": "a", "columns": NaN, "rows": 1}', "body"),
    "a lone surrogate": ('{"type": "eof", "id": "\\ud800"}', "id"),
    "depth": ("[" * 65 + "]" * 65, "body"),
}


async def test_bad_messages_are_answered_and_cost_nobody_anything(runs: Runs, service: Service) -> None:
    run = await runs.sh("cat", stdin="open")
    async with service.viewer(run.id) as viewer:
        for name, (text, field) in BAD.items():
            await viewer.socket.send_str(text)
            error = (await viewer.until(type="error"))["error"]
            assert (error["code"], error["details"]["field"]) == ("INVALID_REQUEST", field), name
        await viewer.socket.send_bytes(b"typed")
        assert (await viewer.until(type="error"))["error"]["code"] == "INVALID_REQUEST"
        await viewer.socket.send_str("x" * (2 * 1024 * 1024 + 1))
        assert (await viewer.until(type="error"))["error"]["code"] == "FRAME_TOO_LARGE"
        assert (await viewer.type("still here\n"))["result"] == "written"
        await viewer.printed("still here")

        async with service.viewer(run.id) as flood:
            with suppress(aiohttp.ClientError, ConnectionError):  # it may be cut off while it still sends
                await flood.socket.send_str("x" * (5 * 1024 * 1024))
            await flood.rest()
            assert flood.socket.close_code in (1009, 1006)
        large = base64.b64encode(b"y" * 1024 * 1024).decode()
        assert (await viewer.ask("stdin", base64=large))["bytes"] == 1024 * 1024


async def test_addresses_that_are_refused(runs: Runs, service: Service) -> None:
    run = await runs.sh("cat", stdin="open")
    for path, status, code in (
        (f"{run.id}/attach?after=999999", 409, "CURSOR_AHEAD"),
        (f"{run.id}/attach?writer=me", 400, "INVALID_REQUEST"),
        (f"{run.id}/attach?columns=80", 400, "INVALID_REQUEST"),
        (f"{run.id}/attach?columns=80&rows=0", 400, "INVALID_REQUEST"),
        ("0" * 16 + "/attach", 404, "UNKNOWN_RUN"),
        (f"{run.id}/attach", 400, "INVALID_REQUEST"),
    ):
        headers = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
        headers["Sec-WebSocket-Key"] = base64.b64encode(os.urandom(16)).decode()
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(service.path)) as session,
            session.get(
                f"http://localhost/v1/runs/{path}", headers=headers if "?" in path or "0" * 16 in path else {}
            ) as answer,
        ):
            assert (answer.status, (await answer.json())["error"]["code"]) == (status, code), path


async def test_another_owners_run_does_not_exist(runs: Runs) -> None:
    run = await runs.sh("cat", stdin="open")
    caller = Caller(os.geteuid(), "ci", "team")
    async with serving(runs.sup, callers=[caller]) as service:
        for asked in (run.id, run.id[:8], "0" * 16):
            with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
                async with service.viewer(asked, writer="steal"):
                    pass
            assert caught.value.status == 404
    assert await runs.kinds(run) == ["run.dispatched", "program.spawned", "program.released"]


async def test_who_stops_reading_is_dropped_with_its_cursor(
    runs: Runs, state_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    size = int(os.environ.get("ATTACH_MEGABYTES", "20")) * 1024 * 1024
    done = state_dir.parent / "done"
    script = f"read go; head -c {size} /dev/zero | tr '\\0' x; touch {shlex.quote(str(done))}; cat"
    caplog.set_level(logging.INFO, "durable_supervisor")
    async with serving(runs.sup, stall=0.2) as service:
        run = await runs.sh(script, stdin="open", max_stdout_bytes=2 * size)
        async with service.viewer(run.id) as idle, service.viewer(run.id, events=False) as writer:
            await idle.until(type="lease")
            idle.pause()
            await writer.type("\n")
            await eventually_async(done.exists, timeout=60)
            await eventually_async(lambda: "viewer_dropped" in caplog.text)
            idle.resume()
            last = (await idle.rest())[-1]
            assert last == {"type": "dropped", "cursor": idle.events[-1]["seq"]}
            assert idle.socket.close_code == 1013
            async with service.viewer(run.id, after=last["cursor"]) as back:
                await writer.ask("eof")
                await back.rest()
    seqs = [event["seq"] for event in idle.events + back.events]
    assert seqs == list(range(1, len(seqs) + 1))
    assert len(idle.output) + len(back.output) == size


async def test_who_is_slow_but_reads_is_kept(runs: Runs) -> None:
    async with serving(runs.sup, stall=6, heartbeat=0.1) as service:
        run = await runs.sh("head -c 4000000 /dev/zero | tr '\\0' x; read line", stdin="open")
        async with service.viewer(run.id) as slow:
            while len(slow.output) < 4000000:
                assert await slow.read() is not None, slow.told
                await asyncio.sleep(0.1)  # so slow that it takes longer than a stall
            assert (await slow.type("\n"))["result"] == "written"


async def test_a_service_that_goes_says_goodbye(runs: Runs) -> None:
    run = await runs.sh("cat", stdin="open")
    async with AsyncExitStack() as stack:
        async with serving(runs.sup) as service:
            viewer = await stack.enter_async_context(service.viewer(run.id))
            await viewer.until(type="lease")
            reading = asyncio.create_task(viewer.rest())
        assert (await reading)[-1] == {"type": "bye"}
        assert viewer.socket.close_code == 1012


async def test_half_a_handshake_holds_nothing_up(runs: Runs, service: Service) -> None:
    run = await runs.sh("cat", stdin="open")
    half = socket.socket(socket.AF_UNIX)
    half.connect(service.path)
    half.sendall(b"GET /v1/runs/" + run.id.encode() + b"/attach HTTP/1.1\r\nHost: x\r\nUpgrade: web")
    async with service.viewer(run.id) as viewer:
        assert (await viewer.type("x\n"))["result"] == "written"
    half.close()


@pytest.mark.parametrize("count", [20])
async def test_many_viewers_see_the_same(runs: Runs, service: Service, count: int) -> None:
    run = await runs.sh("for i in 1 2 3 4 5; do echo $i; done; read line; echo end", stdin="open")

    async def watch() -> list[object]:
        async with service.viewer(run.id) as viewer:
            await viewer.rest()
            return list(viewer.events)

    watching = [asyncio.create_task(watch()) for _ in range(count)]
    await runs.printed(run, b"5\n")
    await runs.sup.write_stdin(run.id, b"\n")
    seen = await asyncio.gather(*watching)
    assert all(events == seen[0] for events in seen)
    assert len(seen[0]) == (await runs.sup.inspect(run.id)).head
