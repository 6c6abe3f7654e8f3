"""One writer at a time: the lease on a run's input, bound to a connection and gone with it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from durable_supervisor import Terminal
from durable_supervisor.model.errors import ErrorCode, SupervisorError
from durable_supervisor.model.events import Kind
from durable_supervisor.model.run import Run
from durable_supervisor.wire.documents import validate
from tests.contract.peers import Peer, socket_of
from tests.contract.runs import Runs
from tests.support import eventually_async

HOLDER = """
import os, sys
sys.path[:0] = sys.argv[2:]
from pathlib import Path
from tests.contract.peers import Peer
peer = Peer(Path(sys.argv[1]))
print(peer.ask({"op": "lease", "id": "theirs"})["result"], flush=True)
sys.stdin.read()
"""


class Desk:
    """A run at a terminal, and whoever sits at it."""

    def __init__(self, runs: Runs, run: Run, path: Path) -> None:
        self.runs = runs
        self.run = run
        self.path = path
        self._peers: list[Peer] = []
        self._asked = 0

    def viewer(self) -> Peer:
        peer = Peer(self.path)
        self._peers.append(peer)
        return peer

    def ask(self, peer: Peer, op: str, blob: bytes = b"", **words: Any) -> dict[str, Any]:
        """Its receipt, under an id of its own unless ``id`` is among the words."""
        self._asked += 1
        answer = peer.ask({"op": op, "id": f"c{self._asked}", **words}, blob)
        assert answer is not None
        return answer

    def result(self, peer: Peer, op: str, blob: bytes = b"", **words: Any) -> str:
        return str(self.ask(peer, op, blob, **words)["result"])

    async def granted(self, peer: Peer) -> None:
        """Once whoever held it is gone, and the worker has seen that."""
        await eventually_async(lambda: self.result(peer, "lease") == "granted")

    def close(self) -> None:
        for peer in self._peers:
            peer.close()


@pytest_asyncio.fixture
async def desk(runs: Runs) -> AsyncIterator[Desk]:
    run = await runs.start(["cat"], pty=Terminal())
    sat_at = Desk(runs, run, await socket_of(runs, run))
    yield sat_at
    sat_at.close()


async def test_one_holds_it_the_other_waits_its_turn(desk: Desk) -> None:
    first, second = desk.viewer(), desk.viewer()
    assert desk.result(first, "lease") == "granted"
    assert desk.ask(second, "lease")["holder_pid"] == os.getpid()
    assert desk.result(second, "lease") == "held"
    assert desk.result(first, "lease") == "granted"  # it has it already
    assert desk.result(second, "unlease") == "not_writer"
    assert desk.result(first, "unlease") == "released"
    assert desk.result(first, "unlease") == "released"  # nobody has it
    assert desk.result(second, "lease") == "granted"


async def test_only_the_holder_writes_and_resizes(desk: Desk) -> None:
    holder, other = desk.viewer(), desk.viewer()
    assert desk.result(other, "stdin", b"free\n") == "written"  # nobody holds it yet
    assert desk.result(holder, "lease") == "granted"
    assert desk.result(other, "stdin", b"no\n") == "not_writer"
    assert desk.result(other, "close_stdin") == "not_writer"
    assert desk.ask(other, "resize", columns=90, rows=20)["holder_pid"] == os.getpid()
    assert desk.result(holder, "stdin", b"yes\n") == "written"
    assert desk.result(holder, "resize", columns=90, rows=20) == "resized"
    assert desk.result(holder, "close_stdin") == "eof_sent"
    await desk.runs.wait(desk.run)
    assert b"no" not in await desk.runs.output(desk.run)


async def test_the_verbs_of_an_owner_are_no_exception(desk: Desk) -> None:
    sup, run_id = desk.runs.sup, desk.run.id
    assert desk.result(desk.viewer(), "lease") == "granted"
    attempts: list[Callable[[], Awaitable[object]]] = [
        lambda: sup.write_stdin(run_id, b"x"),
        lambda: sup.write_stdin(run_id, b"", eof=True),
        lambda: sup.resize(run_id, 90, 20),
    ]
    for attempt in attempts:
        with pytest.raises(SupervisorError) as caught:
            await attempt()
        assert caught.value.code is ErrorCode.WRITER_BUSY
        assert caught.value.retryable
    assert (await sup.signal(run_id, signal.SIGCONT)).result == "delivered"
    assert (await sup.stop(run_id)).confirmed  # whoever writes, anybody of the user may stop it


async def test_a_steal_is_told_to_who_had_it(desk: Desk) -> None:
    first, second = desk.viewer(), desk.viewer()
    assert desk.result(first, "lease") == "granted"
    assert desk.result(second, "lease", steal=True) == "granted"
    assert first.answer() == {"type": "lease_lost", "by_pid": os.getpid()}
    assert desk.result(first, "stdin", b"x") == "not_writer"
    assert desk.result(second, "stdin", b"y") == "written"
    assert desk.result(second, "lease", steal=True) == "granted"  # from oneself: nobody is told
    assert desk.ask(second, "lease", id="last")["id"] == "last"


async def hang_up(peer: Peer) -> None:
    peer.close()


async def half_close(peer: Peer) -> None:
    peer.socket.shutdown(socket.SHUT_WR)


async def talk_nonsense(peer: Peer) -> None:
    peer.send(b"GET / HTTP/1.1\r\n\r\n")
    assert await asyncio.to_thread(peer.answer) is None


@pytest.mark.parametrize("leave", [hang_up, half_close, talk_nonsense])
async def test_it_ends_with_its_connection(desk: Desk, leave: Callable[[Peer], Awaitable[None]]) -> None:
    holder = desk.viewer()
    assert desk.result(holder, "lease") == "granted"
    await leave(holder)
    await desk.granted(desk.viewer())


async def test_it_ends_with_a_killed_holder(desk: Desk) -> None:
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-c", HOLDER, str(desk.path), *sys.path)
    holder = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    assert holder.stdout is not None
    assert await holder.stdout.readline() == b"granted\n"
    viewer = desk.viewer()
    assert desk.ask(viewer, "lease")["holder_pid"] == holder.pid
    holder.kill()
    await desk.granted(viewer)
    await holder.wait()


async def test_a_receipt_of_a_lease_is_for_its_connection_alone(desk: Desk) -> None:
    """The same id again, on another connection, must not say ``granted`` of a lease that this one has not."""
    first, second = desk.viewer(), desk.viewer()
    answer = desk.ask(first, "lease", id="mine")
    assert desk.ask(first, "lease", id="mine") == answer
    assert desk.ask(second, "lease", id="mine") == {"type": "error", "id": "mine", "error": "invalid_control"}


async def test_leases_are_logged_before_they_are_given(desk: Desk) -> None:
    first, second = desk.viewer(), desk.viewer()
    desk.ask(first, "lease", id="a")
    desk.ask(second, "lease", id="b", steal=True)
    desk.ask(second, "unlease", id="c")
    events = await desk.runs.events(desk.run, kinds={Kind.CONTROL_RECEIVED, Kind.CONTROL_APPLIED})
    for event in events:
        validate("event", event.to_dict())
    told = [(one.kind, one.detail["id"], one.detail.get("steal"), one.detail.get("result")) for one in events]
    assert told == [
        ("control.received", "a", False, None),
        ("control.applied", "a", None, "granted"),
        ("control.received", "b", True, None),
        ("control.applied", "b", None, "granted"),
        ("control.received", "c", None, None),
        ("control.applied", "c", None, "released"),
    ]


NONSENSE: list[dict[str, Any]] = [
    {"op": "lease", "steal": "yes"},
    {"op": "lease", "steal": 1},
    {"op": "lease", "steal": None},
    {"op": "resize"},
    {"op": "resize", "columns": 80},
    {"op": "resize", "columns": 80, "rows": 0},
    {"op": "resize", "columns": True, "rows": 24},
    {"op": "resize", "columns": "80", "rows": 24},
    {"op": "resize", "columns": 80.0, "rows": 24},
    {"op": "resize", "columns": 10_001, "rows": 24},
    {"op": "resize", "columns": float("nan"), "rows": 24},
]


async def test_nonsense_is_refused_and_not_logged(desk: Desk) -> None:
    peer = desk.viewer()
    for message in NONSENSE:
        words = {name: value for name, value in message.items() if name != "op"}
        assert desk.ask(peer, message["op"], **words)["error"] == "invalid_control", message
    assert await desk.runs.events(desk.run, kinds={Kind.CONTROL_RECEIVED}) == []


async def test_pipes_have_a_lease_too(runs: Runs) -> None:
    run = await runs.start(["cat"], stdin="open")
    piped = Desk(runs, run, await socket_of(runs, run))
    holder, other = piped.viewer(), piped.viewer()
    assert piped.result(holder, "lease") == "granted"
    assert piped.result(other, "stdin", b"no") == "not_writer"
    assert piped.result(holder, "stdin", b"yes") == "written"
    assert piped.result(holder, "resize", columns=80, rows=24) == "no_terminal"
    assert piped.result(holder, "close_stdin") == "closed"
    piped.close()
    await runs.wait(run)
    assert await runs.output(run) == b"yes"
