"""What a call comes to when its connection ends at the worst moment, on a real socket whose bytes we choose.

The table: a deed may have been carried out as soon as a byte of it is out, and is never sent
again; a start is, under one request id; a read is asked once more.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from durable_supervisor import Command, ErrorCode, Event, SupervisorError
from durable_supervisor.process.places import SOCKET_NAME
from tests.client.faces import AsyncFace, Face, SyncFace
from tests.client.raw import (
    CONTROLLED,
    END,
    FEED,
    RUN,
    STARTED,
    STOPPED,
    STREAM_HEAD,
    Behaviour,
    RawService,
    Visit,
    answer,
    chunk,
    error,
    event,
)
from tests.contract.hosts import check_error, refused

Kind = type[AsyncFace] | type[SyncFace]

DEEDS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "stop": ([RUN], STOPPED),
    "signal": ([RUN, 15], CONTROLLED),
    "write_stdin": ([RUN, b"abc"], CONTROLLED),
    "resize": ([RUN, 80, 24], CONTROLLED),
    "resolve": ([RUN], STOPPED),
}


async def nothing(visit: Visit) -> None:
    """Close at once."""


def says(*words: bytes) -> Behaviour:
    """Takes a request and answers with these bytes, then ends the connection."""

    async def behave(visit: Visit) -> None:
        await visit.request()
        for word in words:
            await visit.say(word)

    return behave


def in_turn(*behaviours: Behaviour) -> Behaviour:
    """One for each connection; the last one for all that follow."""

    async def behave(visit: Visit) -> None:
        await behaviours[min(visit.number, len(behaviours) - 1)](visit)

    return behave


async def first_call_to(kind: Kind, service: RawService, **options: Any) -> Face:
    """A client whose kept connection is given up, so that the next call makes visit 1."""
    face = await kind.connect(service.state_dir, **options)
    face.client._connections._idle.pop()[0].close()
    return face


@pytest.mark.parametrize("verb", sorted(DEEDS))
async def test_a_deed_that_was_sent_is_never_sent_again(kind: Kind, verb: str, state_dir: Path) -> None:
    """Whatever part of the answer came: nothing, half a head, half a body."""
    args, form = DEEDS[verb]
    whole = answer(form)
    for cut in (0, 1, 20, len(whole) // 2, len(whole) - 1):
        async with RawService(state_dir, says(whole[:cut])).listening() as service:
            face = await first_call_to(kind, service)
            async with refused(ErrorCode.SUBMISSION_INDETERMINATE) as caught:
                await face.call(verb, *args)
            assert caught().retryable is False
            assert (caught().details["verb"], caught().details["run_id"]) == (verb, RUN)
            assert service.greetings == 2, "the client's own, and the call's"
            await face.close()


@pytest.mark.parametrize("verb", sorted(DEEDS))
async def test_a_deed_that_could_not_be_sent_may_be_tried_again(
    kind: Kind, verb: str, state_dir: Path
) -> None:
    async with RawService(state_dir, nothing).listening() as service:
        face = await first_call_to(kind, service)
    async with refused(ErrorCode.SERVICE_UNAVAILABLE) as caught:
        await face.call(verb, *DEEDS[verb][0])
    assert caught().retryable is True
    await face.close()


async def test_every_byte_of_an_answer(state_dir: Path) -> None:
    """Cut after each one: only the whole answer is an answer."""
    whole = answer(STOPPED)
    lengths = iter(range(len(whole) + 1))

    async def behave(visit: Visit) -> None:
        if visit.number:  # the first is the client's own
            await visit.request()
            await visit.say(whole[: next(lengths)])

    async with RawService(state_dir, behave).listening() as service:
        async with await _async(service) as client:
            for _ in range(len(whole)):
                with pytest.raises(SupervisorError) as caught:
                    await client.stop(RUN)
                check_error(caught.value, ErrorCode.SUBMISSION_INDETERMINATE)
            assert (await client.stop(RUN)).confirmed
        assert service.greetings == len(whole) + 2


async def _async(service: RawService) -> Any:
    face = await first_call_to(AsyncFace, service)
    return face.client


async def test_every_byte_of_a_request(state_dir: Path) -> None:
    """The service reads so many bytes of it and ends the connection: none of them may be sent again."""
    read = 0

    async def behave(visit: Visit) -> None:
        if visit.number and read:
            await visit.reader.readexactly(read)
        elif visit.number:
            await asyncio.sleep(0)

    async with RawService(state_dir, behave).listening() as service, await _async(service) as client:
        for read in range(0, 150, 5):
            before = service.greetings
            with pytest.raises(SupervisorError) as caught:
                await client.signal(RUN, 15)
            # It may have been so quick that nothing was sent at all.
            check_error(caught.value, ErrorCode.SUBMISSION_INDETERMINATE, ErrorCode.SERVICE_UNAVAILABLE)
            assert read == 0 or caught.value.code is ErrorCode.SUBMISSION_INDETERMINATE
            assert service.greetings == before + 1


async def test_an_idle_end_is_no_doubt(kind: Kind, state_dir: Path) -> None:
    """The service ended a connection that nobody used: the next deed simply takes another."""
    ended = asyncio.Event()

    async def first(visit: Visit) -> None:
        visit.writer.close()
        ended.set()

    async with RawService(state_dir, in_turn(first, says(answer(STOPPED)))).listening() as service:
        face = await kind.connect(state_dir)
        await ended.wait()
        assert (await face.call("stop", RUN)).confirmed
        assert service.greetings == 2
        await face.close()


async def test_a_start_is_sent_again_under_one_request_id(kind: Kind, state_dir: Path) -> None:
    bodies: list[bytes] = []

    async def lose(visit: Visit) -> None:
        bodies.append((await visit.request()).partition(b"\r\n\r\n")[2])

    async def take(visit: Visit) -> None:
        await lose(visit)
        await visit.say(answer(STARTED, 201))

    async with RawService(state_dir, in_turn(nothing, lose, lose, take)).listening() as service:
        face = await first_call_to(kind, service)
        run = await face.call("start", Command(argv=["true"]))
        assert run.id == RUN
        await face.close()
    assert len(bodies) == 3
    assert len(set(bodies)) == 1, "the very same request"
    assert json.loads(bodies[0])["request_id"].startswith("req-")


async def test_a_start_in_doubt_says_under_which_id(kind: Kind, state_dir: Path) -> None:
    """The service takes it, ends, and stays away."""
    async with RawService(state_dir, says()).listening() as service:
        face = await first_call_to(kind, service, reconnect=0.3)
        call = asyncio.ensure_future(_start(face))
        async with refused(ErrorCode.SUBMISSION_INDETERMINATE) as caught:
            await call
    assert caught().retryable is True
    assert caught().details == {"verb": "start", "request_id": "mine"}
    async with refused(ErrorCode.SERVICE_UNAVAILABLE):
        await _start(face)
    await face.close()


async def _start(face: Face) -> Any:
    return await face.call("start", Command(argv=["true"]), request_id="mine")


@pytest.mark.parametrize(
    ("told", "code"),
    [
        ("CAPACITY_EXHAUSTED", ErrorCode.CAPACITY_EXHAUSTED),  # its id was looked up first, and is not known
        ("IDEMPOTENCY_CONFLICT", ErrorCode.IDEMPOTENCY_CONFLICT),
        ("NO_SPACE", ErrorCode.SUBMISSION_INDETERMINATE),  # refused before anything was looked at
        ("JOURNAL_MISSING", ErrorCode.SUBMISSION_INDETERMINATE),
    ],
)
async def test_a_refusal_after_a_lost_start_is_believed_only_if_it_can_know(
    kind: Kind, state_dir: Path, told: str, code: ErrorCode
) -> None:
    refusal = says(answer(error(told), 503))
    async with RawService(state_dir, in_turn(nothing, says(), refusal)).listening() as service:
        face = await first_call_to(kind, service)
        async with refused(code):
            await _start(face)
        async with refused(ErrorCode[told]):
            await _start(face)
        await face.close()


@pytest.mark.parametrize(
    ("verb", "args", "code"),
    [
        ("stop", [RUN], ErrorCode.SUBMISSION_INDETERMINATE),
        ("start", [Command(argv=["true"])], ErrorCode.SUBMISSION_INDETERMINATE),
        ("inspect", [RUN], ErrorCode.SUPERVISOR_CLOSED),
    ],
)
async def test_closing_under_a_call(
    kind: Kind, state_dir: Path, verb: str, args: list[Any], code: ErrorCode
) -> None:
    """A deed that is out may be carried out, whoever has closed the connection."""
    asked = asyncio.Event()

    async def silent(visit: Visit) -> None:
        await visit.request()
        asked.set()
        await visit.reader.read()

    async with RawService(state_dir, in_turn(nothing, silent)).listening() as service:
        face = await first_call_to(kind, service)
        call = asyncio.ensure_future(_call(face, verb, args))
        await asked.wait()
        await face.close()
        async with refused(code):
            await asyncio.wait_for(call, 10)


async def _call(face: Face, verb: str, args: list[Any]) -> Any:
    return await face.call(verb, *args)


async def test_a_start_waits_for_the_next_owner_while_one_leaves(kind: Kind, state_dir: Path) -> None:
    leaving = says(answer(error("SHUTTING_DOWN"), 503))
    async with RawService(state_dir, in_turn(nothing, leaving, says(answer(STARTED)))).listening() as service:
        face = await first_call_to(kind, service)
        assert (await _start(face)).id == RUN
        await face.close()


async def test_a_start_is_never_sent_to_another_directorys_service(kind: Kind, state_dir: Path) -> None:
    """It could not know that the request was carried out already, and would run it a second time."""
    async with RawService(state_dir, says()).listening() as service:
        face = await first_call_to(kind, service, reconnect=0.5)

        async def lose_and_change(visit: Visit) -> None:
            await visit.request()
            service.directory_id = "dir-1111111111111111"
            service.behave = says(answer(STARTED))

        service.behave = lose_and_change
        async with refused(ErrorCode.SUBMISSION_INDETERMINATE):
            await _start(face)
        async with refused(ErrorCode.SERVICE_UNAVAILABLE) as caught:
            await face.call("inspect", RUN)
        assert "another state directory" in caught().message
        await face.close()


async def test_a_read_is_asked_once_more(kind: Kind, state_dir: Path) -> None:
    half = answer(FEED)[:-3]
    async with RawService(state_dir, in_turn(nothing, says(half), says(answer(FEED)))).listening() as service:
        face = await first_call_to(kind, service)
        assert await face.call("feed") == []
        service.behave = says(half)
        async with refused(ErrorCode.SERVICE_UNAVAILABLE) as caught:
            await face.call("feed")
        assert caught().retryable is True
        assert service.greetings == 5
        await face.close()


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


async def test_a_large_write_says_how_much_is_certain(kind: Kind, state_dir: Path) -> None:
    async def behave(visit: Visit) -> None:
        await visit.request()
        await visit.say(answer(CONTROLLED))
        await visit.request()

    async with RawService(state_dir, in_turn(nothing, behave)).listening() as service:
        face = await first_call_to(kind, service)
        async with refused(ErrorCode.SUBMISSION_INDETERMINATE) as caught:
            await face.call("write_stdin", RUN, b"x" * 1_000_000)
        assert caught().details["confirmed"] == 512 * 1024
        await face.close()


@pytest.mark.parametrize("behave", [nothing, says()])
async def test_nobody_there(kind: Kind, state_dir: Path, behave: Behaviour) -> None:
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
