"""What a call comes to when its connection ends at the worst moment, on a real socket whose bytes we choose.

The table: a deed may have been carried out as soon as a byte of it is out, and is never sent
again; a start is, under one request id; a read is asked once more.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from durable_supervisor import Command, ErrorCode, SupervisorError
from tests.client.faces import AsyncFace, Face, Kind, first_call_to
from tests.client.raw import (
    CONTROLLED,
    FEED,
    RUN,
    STARTED,
    STOPPED,
    RawService,
    Visit,
    answer,
    error,
    in_turn,
    nothing,
    says,
)
from tests.contract.hosts import check_error, refused
from tests.support import PATIENCE

DEEDS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "stop": ([RUN], STOPPED),
    "signal": ([RUN, 15], CONTROLLED),
    "write_stdin": ([RUN, b"abc"], CONTROLLED),
    "resize": ([RUN, 80, 24], CONTROLLED),
    "resolve": ([RUN], STOPPED),
}


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
            await asyncio.wait_for(call, PATIENCE)


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
