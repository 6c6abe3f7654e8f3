"""Events: exact bytes, one gapless sequence, at any page size and over any face."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from durable_supervisor import ErrorCode, Event, Kind, Phase
from durable_supervisor.model.run import Run
from tests.contract.hosts import refused
from tests.contract.runs import check_gapless
from tests.faces.face import Face, refusing

EVERY_BYTE = bytes(range(256)) * 16
CHATTER = "i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo out $i; echo err $i >&2; done"


async def followed(face: Face, run: Run, **options: object) -> list[Event]:
    return [event async for event in face.sup.follow(run.id, **options)]  # type: ignore[arg-type]


async def test_output_is_kept_byte_for_byte(face: Face) -> None:
    run = await face.sh("tee /dev/stderr", stdin=EVERY_BYTE)
    await face.wait(run)
    for stream in ("stdout", "stderr"):
        assert await face.output(run, stream) == EVERY_BYTE
    kept = [event for event in await face.events(run) if event.kind == Kind.OUTPUT]
    for stream in ("stdout", "stderr"):
        position = 0
        for event in kept:
            if event.stream == stream:
                assert event.offset == position
                position += len(event.data)


async def test_small_pages_add_up_to_large_ones(face: Face) -> None:
    run = await face.sh(CHATTER)
    await face.wait(run)
    whole = await face.events(run, size=1000)
    check_gapless(whole)
    assert await face.events(run, size=7) == whole
    assert await face.events(run, size=7, output=False) == [one for one in whole if one.kind != Kind.OUTPUT]
    assert await face.events(run, size=1, kinds={Kind.RUN_FINISHED}) == whole[-1:]
    page = await face.sup.events(run.id, after=whole[-1].seq)
    assert (page.events, page.next_after, page.head, page.end) == ([], whole[-1].seq, whole[-1].seq, True)


async def test_following_is_reading(face: Face) -> None:
    run = await face.sh(f"{CHATTER}; sleep 0.1; {CHATTER}")
    live = await followed(face, run)
    whole = await face.events(run)
    check_gapless(whole)
    assert live == whole
    assert live[-1].kind == Kind.RUN_FINISHED
    middle = len(whole) // 2
    assert await followed(face, run, after=whole[middle].seq) == whole[middle + 1 :]
    assert await followed(face, run, kinds=[Kind.PROGRAM_EXITED]) == [
        one for one in whole if one.kind == Kind.PROGRAM_EXITED
    ]


async def test_who_leaves_comes_back_by_the_cursor(face: Face) -> None:
    """Again and again, in the middle of it: each seq once."""
    run = await face.sh("i=0; while [ $i -lt 60 ]; do i=$((i+1)); echo $i; sleep 0.005; done")
    seen: list[Event] = []
    while not seen or seen[-1].kind != Kind.RUN_FINISHED:
        async with aclosing(face.sup.follow(run.id, after=seen[-1].seq if seen else 0)) as events:
            async for event in events:
                seen.append(event)
                if len(seen) % 25 == 0:
                    break
    check_gapless(seen)
    text = b"".join(one.data for one in seen if one.kind == Kind.OUTPUT)
    assert text.split() == [b"%d" % number for number in range(1, 61)]


async def test_several_follow_one_run(face: Face) -> None:
    run = await face.sh(f"sleep 0.1; {CHATTER}")
    first, *others = await asyncio.gather(*(followed(face, run) for _ in range(4)))
    check_gapless(first)
    assert others == [first] * 3


async def test_what_was_dropped_is_covered(face: Face) -> None:
    run = await face.sh("yes 'a line among many' | head -c 400000; echo >&2", max_stdout_bytes=65536)
    receipt = await face.receipt(run)
    events = await face.events(run)
    check_gapless(events)
    kept = await face.output(run)
    assert len(kept) <= 65536
    told = receipt["output"]["stdout"]
    assert (told["bytes"], told["dropped"]) == (400_000, 400_000 - len(kept))
    assert any(one.kind == Kind.OUTPUT_DROPPED for one in events)
    assert await face.events(run, size=3) == await followed(face, run) == events


async def test_a_cursor_beyond_the_head_is_told(face: Face) -> None:
    run = await face.start(["true"])
    await face.wait(run)
    page = await face.sup.events(run.id)
    ahead = page.head + 1000
    expected = {"after": ahead, "head": page.head, "generation": page.generation}
    async with refusing(ErrorCode.CURSOR_AHEAD, Phase.READ, expected):
        await face.sup.events(run.id, after=ahead)
    async with refusing(ErrorCode.CURSOR_AHEAD, Phase.READ, expected):
        await followed(face, run, after=ahead)


async def test_arguments_are_checked(face: Face) -> None:
    run = await face.start(["true"])
    for verb, argument, value in (
        ("events", "after", -1),
        ("events", "limit", 0),
        ("events", "limit", 10_001),
        ("events", "kinds", "output"),
        ("wait", "timeout", -1),
        ("stop", "grace", float("nan")),
    ):
        async with refusing(ErrorCode.INVALID_REQUEST, Phase.VALIDATE, {"field": argument}):
            await getattr(face.sup, verb)(run.id, **{argument: value})


async def test_following_what_there_is_not(face: Face) -> None:
    async with refused(ErrorCode.UNKNOWN_RUN):
        await anext(face.sup.follow("0" * 16))
