"""Streams that are cut anywhere, services that answer nonsense or nothing, and those that are not there."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from durable_supervisor import ErrorCode, Event
from durable_supervisor.process.places import SOCKET_NAME
from tests.client.faces import Face, Kind, first_call_to
from tests.client.raw import (
    END,
    RUN,
    STREAM_HEAD,
    RawService,
    Visit,
    answer,
    chunk,
    error,
    event,
    in_turn,
    nothing,
    says,
)
from tests.contract.hosts import refused


async def test_following_goes_on_wherever_a_stream_is_cut(kind: Kind, state_dir: Path) -> None:
    """Cut at every 11th byte: each event once, in order."""
    last = 6
    stream = [STREAM_HEAD + b"".join(chunk(event(seq)) for seq in range(after + 1, last + 1)) + chunk(END)
              for after in range(last + 1)]  # fmt: skip
    cuts = iter(range(len(STREAM_HEAD) - 20, len(stream[0]), 11))
    asked: list[int] = []

    async def behave(visit: Visit) -> None:
        if visit.number == 0:
            return
        target = (await visit.request()).split()[1].decode()
        after = int(target.partition("after=")[2].partition("&")[0])
        asked.append(after)
        whole = stream[after]
        await visit.say(whole[: min(next(cuts, len(whole)), len(whole))])

    async with RawService(state_dir, behave).listening() as service:
        face = await first_call_to(kind, service)
        events: list[Event] = [found async for found in face.stream("follow", RUN)]
        await face.close()
    assert [found.seq for found in events] == list(range(1, last + 1))
    assert asked == sorted(asked)
    assert len(asked) > 20


async def test_a_follower_gives_up_after_its_bound(kind: Kind, state_dir: Path) -> None:
    first = says(STREAM_HEAD + chunk(event(1)))
    async with RawService(state_dir, in_turn(nothing, first, nothing)).listening() as service:
        face = await first_call_to(kind, service, reconnect=0.3)
        seqs = []
        async with refused(ErrorCode.SERVICE_UNAVAILABLE):
            async for found in face.stream("follow", RUN):
                seqs.append(found.seq)
        assert seqs == [1]
        await face.close()


async def test_what_a_stream_says_at_its_end(kind: Kind, state_dir: Path) -> None:
    """A failure is raised after what came before it; a goodbye is followed to the next service."""
    bye = b'event: bye\ndata: {"reason": "draining"}\n\n'
    failure = b"event: error\ndata: %s\n\n" % json.dumps(error("JOURNAL_CORRUPT")).encode()
    script = in_turn(
        nothing,
        says(STREAM_HEAD + chunk(event(1) + bye)),
        says(STREAM_HEAD + chunk(b": heartbeat\n\n" + event(1) + event(2) + failure)),
    )
    async with RawService(state_dir, script).listening() as service:
        face = await first_call_to(kind, service)
        seqs = []
        async with refused(ErrorCode.JOURNAL_CORRUPT):
            async for found in face.stream("follow", RUN):
                seqs.append(found.seq)
        assert seqs == [1, 2]
        await face.close()


async def test_waiting_goes_on_over_lost_connections(kind: Kind, state_dir: Path) -> None:
    slice_over = answer(error("WAIT_TIMEOUT", run_id=RUN, state="running"), 504)
    unknown = answer(error("OUTCOME_UNKNOWN", run_id=RUN), 409)
    async with RawService(
        state_dir, in_turn(nothing, says(), says(slice_over), says(b"HTTP/1.1 200"), says(unknown))
    ).listening() as service:
        face = await first_call_to(kind, service)
        async with refused(ErrorCode.OUTCOME_UNKNOWN):
            await face.call("wait", RUN)
        assert service.greetings == 5
        await face.close()


async def test_a_full_house_keeps_out_only_who_was_not_in_it(kind: Kind, state_dir: Path) -> None:
    """A follower that lost its service waits for a place at the next one; a new one is told at once."""
    full = says(answer(error("BUSY"), 503))
    rest = says(STREAM_HEAD + chunk(event(2) + END))
    script = in_turn(nothing, full, says(STREAM_HEAD + chunk(event(1))), full, full, rest)
    async with RawService(state_dir, script).listening() as service:
        face = await first_call_to(kind, service)
        async with refused(ErrorCode.BUSY):
            _ = [found async for found in face.stream("follow", RUN)]
        assert [found.seq async for found in face.stream("follow", RUN)] == [1, 2]
        await face.close()


GARBAGE = [
    b"SSH-2.0-OpenSSH_9.6\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnull",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{]",
    b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000,
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"HTTP/1.1 400 Bad Request\r\nContent-Length: 3\r\n\r\nno!",
    b"\0" * 1000,
]


async def test_garbage_is_no_answer(kind: Kind, state_dir: Path) -> None:
    async with RawService(state_dir, nothing).listening() as service:
        face = await first_call_to(kind, service)
        for garbage in GARBAGE:
            service.behave = says(garbage)
            async with refused(ErrorCode.SUBMISSION_INDETERMINATE):
                await face.call("stop", RUN)
            async with refused(ErrorCode.SERVICE_UNAVAILABLE):
                await face.call("inspect", RUN)
        await face.close()


async def test_a_document_of_another_kind_is_told_as_that(kind: Kind, state_dir: Path) -> None:
    async with RawService(state_dir, nothing).listening() as service:
        face = await first_call_to(kind, service)
        for form in ({}, {"run_id": 7}, {"schema": "durable-supervisor/inspect/2"}, {"error": "no"}):
            service.behave = says(answer(form))
            async with refused(ErrorCode.INTERNAL):
                await face.call("inspect", RUN)
        await face.close()


async def test_an_answer_that_comes_before_the_request_is_read(kind: Kind, state_dir: Path) -> None:
    """Refused by its head alone, and ended: what was said counts, not the broken pipe."""

    async def refuse(visit: Visit) -> None:
        await visit.reader.readuntil(b"\r\n\r\n")
        await visit.say(answer(error("STDIN_CLOSED"), 409))

    async with RawService(state_dir, in_turn(nothing, refuse)).listening() as service:
        face = await first_call_to(kind, service)
        async with refused(ErrorCode.STDIN_CLOSED) as caught:
            await face.call("write_stdin", RUN, b"x" * 500_000)
        assert caught().details["confirmed"] == 0
        await face.close()


async def test_nobody_there(kind: Kind, state_dir: Path) -> None:
    async with refused(ErrorCode.SERVICE_UNAVAILABLE) as caught:
        await kind.connect(state_dir)
    assert str(state_dir / SOCKET_NAME) in caught().message
    assert "serve" in caught().hint


async def test_another_version_is_refused_naming_both(kind: Kind, state_dir: Path) -> None:
    service = RawService(state_dir, nothing, api_versions=[2, 3])
    async with service.listening(), refused(ErrorCode.UNSUPPORTED_API_VERSION) as caught:
        await kind.connect(state_dir)
    assert caught().details == {"client": [1], "supported": [2, 3]}
    assert "1" in caught().message
    assert "2, 3" in caught().message


async def test_a_silent_service_is_given_up(
    kind: Kind, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps the connection and says nothing: a bound for each call, not for ever."""

    async def silent(visit: Visit) -> None:
        await visit.request()
        await visit.reader.read()

    async with RawService(state_dir, in_turn(nothing, silent)).listening() as service:
        face = await first_call_to(kind, service)
        monkeypatch.setattr("durable_supervisor.client.verbs.ANSWER_SECONDS", 0.2)
        async with refused(ErrorCode.SUBMISSION_INDETERMINATE) as caught:
            await face.call("stop", RUN, timeout=0.1)
        assert "silent" in caught().message
        await face.close()


def full_backlog(path: Path) -> Callable[[], None]:
    """A listener that accepts nobody, with its queue full; returns what empties it."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(0)
    waiting = socket.socket(socket.AF_UNIX)
    waiting.connect(str(path))

    def let_in() -> None:
        waiting.close()
        accepted, _ = listener.accept()
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        accepted.close()
        listener.close()

    return let_in


async def test_a_full_queue_is_waited_for(kind: Kind, state_dir: Path) -> None:
    let_in = full_backlog(state_dir / SOCKET_NAME)
    connecting = asyncio.ensure_future(_connect(kind, state_dir))
    done, _ = await asyncio.wait({connecting}, timeout=0.3)
    assert not done, "it neither failed nor took the connection for made"
    let_in()
    async with refused(ErrorCode.SERVICE_UNAVAILABLE):
        await connecting


async def _connect(kind: Kind, state_dir: Path) -> Face:
    return await kind.connect(state_dir)
