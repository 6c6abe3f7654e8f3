"""What a peer may write to the worker's socket, and what comes of nonsense."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from typing import Any

import pytest

from durable_supervisor.model.events import Kind
from durable_supervisor.process.channel import encode_frame
from tests.contract.peers import Peer, alive, end, frame, long_run
from tests.contract.runs import Marker, Runs, gone

MALFORMED = {
    "no frame": b"GET / HTTP/1.1\r\n\r\n",
    "not json": frame(b"{nope"),
    "an array": frame(b"[1]"),
    "a number": frame(b"1"),
    "nothing": frame(b""),
    "too long": struct.pack("<II", 1 << 20, 0),
    "huge blob": struct.pack("<II", 2, (1 << 32) - 1) + b"{}",
    "invalid utf-8": frame(b'{"op":"\xff"}'),
    "deep": frame(b'{"op":' + b"[" * 30_000 + b"]" * 30_000 + b"}"),
    "huge number": frame(b'{"op":"watch","after":' + b"9" * 5000 + b"}"),
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
async def test_malformed_frames_cost_only_their_connection(runs: Runs, marker: Marker, data: bytes) -> None:
    run, path = await long_run(runs, marker)
    bystander, peer = Peer(path), Peer(path)
    assert bystander.ask({"op": "ping"}) is not None
    peer.send(data)
    assert await asyncio.to_thread(peer.answer) is None
    assert bystander.ask({"op": "ping"}) is not None
    peer.close()
    bystander.close()
    await alive(runs, run, path)
    await end(runs, run, marker)


NONSENSE: list[dict[str, Any]] = [
    {},
    {"op": None},
    {"op": ["stop"], "id": "a"},
    {"op": {}, "id": "a"},
    {"op": "nothing", "id": "a"},
    {"op": "stop"},
    {"op": "stop", "id": ""},
    {"op": "stop", "id": "x" * 129},
    {"op": "stop", "id": "new\nline"},
    {"op": "stop", "id": "\ud800"},
    {"op": "stop", "id": 7},
    {"op": "stop", "id": ["a"]},
    {"op": "watch"},
    {"op": "watch", "after": "1"},
    {"op": "watch", "after": 1.5},
    {"op": "watch", "after": None},
]
# Well-formed controls with values that mean nothing; none of them may end or harm the run.
ODD: list[dict[str, Any]] = [
    {"op": "signal", "signal": True},
    {"op": "signal", "signal": "TERM"},
    {"op": "signal", "signal": None},
    {"op": "signal", "signal": 10_000},
    {"op": "signal", "signal": -9},
    {"op": "signal", "signal": 1e300},
    {"op": "signal", "signal": float("nan")},
    {"op": "signal", "signal": {"deep": [{}] * 50}},
    {"op": "signal", "signal": 18, "target": ["tree"]},
    {"op": "signal", "signal": 18, "target": float("inf")},
    {"op": "stdin", "grace": float("nan")},
    {"op": "close_stdin", "target": [[[]]]},
]


async def test_nonsense_is_answered_and_changes_nothing(runs: Runs, marker: Marker) -> None:
    run, path = await long_run(runs, marker)
    peer = Peer(path)
    for message in NONSENSE:
        answer = await asyncio.to_thread(peer.ask, message)
        assert answer is not None, message
        assert answer["type"] == "error", message
    assert await runs.events(run, kinds={Kind.CONTROL_RECEIVED, Kind.CONTROL_APPLIED}) == []
    for number, message in enumerate(ODD):
        answer = await asyncio.to_thread(peer.ask, {**message, "id": f"odd-{number}"})
        assert answer is not None, message
        assert answer["type"] == "receipt", message
    peer.send(encode_frame({"op": "watch", "after": True}))  # a bool is a number in Python
    assert (await asyncio.to_thread(peer.answer) or {})["type"] == "head"
    peer.close()
    await alive(runs, run, path)
    for event in await runs.events(run):
        json.dumps(event.to_dict(), allow_nan=False)
    await end(runs, run, marker)


@pytest.mark.parametrize("grace", [float("nan"), float("inf"), -1, "1", None, True, [1], 10**400])
async def test_an_odd_grace_means_the_runs_own(runs: Runs, marker: Marker, grace: object) -> None:
    run, path = await long_run(runs, marker)
    peer = Peer(path)
    answer = await asyncio.to_thread(peer.ask, {"op": "stop", "id": "s", "grace": grace})
    assert answer is not None
    assert answer["result"] == "stopping"
    peer.close()
    receipt = await runs.receipt(run)
    gone(marker)
    assert receipt["stop"]["grace"] == 3


async def test_a_frame_in_pieces_is_one_frame(runs: Runs, marker: Marker) -> None:
    run, path = await long_run(runs, marker)
    peer = Peer(path)
    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    for byte in encode_frame({"op": "ping"}):
        peer.send(bytes([byte]))
    assert (await asyncio.to_thread(peer.answer) or {})["type"] == "pong"
    peer.send(encode_frame({"op": "ping"}) * 50)
    for _ in range(50):
        assert await asyncio.to_thread(peer.answer) is not None
    peer.send(encode_frame({"op": "ping"})[:5])
    peer.close()  # in the middle of a frame
    await alive(runs, run, path)
    await end(runs, run, marker)
