"""Lists, the feed, names of runs, secrets, slots and the queue."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

from durable_supervisor import Command, ErrorCode, FeedEntry, Phase, RunState, RunView
from durable_supervisor.model.run import Run
from tests.contract.hosts import refused
from tests.contract.lines import Yard, finished, hold, in_state, queue
from tests.faces.face import Face, refusing
from tests.support import PATIENCE, eventually_async

SECRET = "correct-horse-battery-staple"


async def listed(face: Face, size: int, **filters: Any) -> list[RunView]:
    """All of this test's runs, newest first, in pages of ``size``."""
    found: list[RunView] = []
    before: int | None = None
    while True:
        page = await face.sup.list(limit=size, before=before, label=("test", face.tag), **filters)
        assert len(page.runs) <= size
        found += page.runs
        if page.next_before is None:
            return found
        before = page.next_before


async def test_lists_come_in_pages_newest_first(face: Face) -> None:
    runs = [await face.ask(f"run-{number}", ["true"], labels={"test": face.tag}) for number in range(5)]
    for run in runs:
        await face.wait(run)
    for size in (1, 2, 100):
        assert [seen.id for seen in await listed(face, size)] == [run.id for run in reversed(runs)]

    async def all_known() -> bool:
        return len(await listed(face, 2, states=[RunState.FINISHED])) == 5

    await eventually_async(all_known)
    assert await listed(face, 2, states=[RunState.RUNNING]) == []
    assert await listed(face, 2, owner="somebody-else") == []
    assert len(await listed(face, 2, owner="local")) == 5


async def test_the_feed_tells_each_change_once_in_order(face: Face) -> None:
    begin = await newest(face)
    run = await face.start(["sh", "-c", "exit 3"])

    async def told() -> list[FeedEntry]:
        found: list[FeedEntry] = []
        async with aclosing(face.sup.follow_feed(after=begin)) as pages:
            async for page in pages:
                found += page
                if any((entry.run_id, entry.state) == (run.id, RunState.FINISHED) for entry in page):
                    return found
        raise AssertionError("it ended")

    entries = await asyncio.wait_for(told(), PATIENCE)
    positions = [entry.position for entry in entries]
    assert positions == list(range(begin + 1, begin + 1 + len(entries)))
    mine = [entry for entry in entries if entry.run_id == run.id]
    assert mine[0].trigger == "admit"
    assert mine[-1].state is RunState.FINISHED
    read = list(await face.sup.feed(after=begin, limit=len(entries)))
    assert [(one.position, one.run_id, one.state) for one in read] == [
        (one.position, one.run_id, one.state) for one in entries
    ]


async def newest(face: Face) -> int:
    after = 0
    while entries := await face.sup.feed(after=after, limit=1000):
        after = entries[-1].position
    return after


async def test_a_beginning_of_an_id_is_enough_if_it_is_one_runs(face: Face) -> None:
    found: dict[str, list[str]] = {}
    while all(len(ids) < 2 for ids in found.values()):
        run = await face.sup.start(Command(argv=["/no/such/program"]))
        found.setdefault(run.id[0], []).append(run.id)
    letter, ids = next((letter, ids) for letter, ids in found.items() if len(ids) > 1)
    async with refused(ErrorCode.AMBIGUOUS_RUN) as caught:
        await face.sup.inspect(letter)
    error = caught()
    assert (error.phase, error.retryable, set(error.details)) == (Phase.READ, False, {"candidates"})
    candidates = error.details["candidates"]
    assert isinstance(candidates, list)
    assert candidates == sorted(candidates)
    assert len(candidates) >= 2
    assert all(one.startswith(letter) for one in candidates)
    assert await face.sup.find(ids[0][:12].upper()) == ids[0]
    assert (await face.sup.inspect(ids[0][:12])).id == ids[0]


async def test_secrets_stay_off_the_disk_and_out_of_every_answer(face: Face) -> None:
    """Printed whole, printed in two writes, typed in."""
    script = 'echo "<$KEY>"; printf "<%.12s" "$KEY"; sleep .1; echo "${KEY#????????????}>"; cat'
    run = await face.sh(script, secret_env={"KEY": SECRET}, stdin="open")
    await face.sup.write_stdin(run.id, SECRET.encode(), eof=True)
    seen = await face.wait(run)
    assert await face.output(run) == b"<[redacted]>\n<[redacted]>\n[redacted]"
    assert SECRET.encode() not in face.log_bytes()
    answers = [seen.to_dict(), (await face.sup.list()).to_dict()]
    assert SECRET not in str([*answers, *(event.to_dict() for event in await face.events(run))])


# Slots and the queue: whoever answers has one slot, and a queue for two.


async def test_a_full_house_refuses_and_spends_no_id(narrow: Face, tmp_path: Path) -> None:
    yard = Yard(tmp_path)
    first = await holds(narrow, yard, "first")
    full = {"scope": "host", "limit": 1, "held": 1}
    for _ in range(2):
        async with refusing(ErrorCode.CAPACITY_EXHAUSTED, Phase.ADMIT, full, retryable=True):
            await narrow.sup.start(yard.command("second"), request_id=narrow.id("second"))
    known = await narrow.sup.start(yard.holder(narrow.id("first")), request_id=narrow.id("first"))
    assert (known.id, known.admission) == (first.id, "existing")
    yard.release(narrow.id("first"))
    await finished(narrow.sup, first)
    second = await narrow.sup.start(yard.command("second"), request_id=narrow.id("second"))
    assert (second.admission, second.attempt) == ("new", 1)
    await finished(narrow.sup, second)
    assert yard.signed_in() == [narrow.id("first"), "second"]


async def test_the_queue_has_its_order_and_its_bound(narrow: Face, tmp_path: Path) -> None:
    yard = Yard(tmp_path)
    first = await holds(narrow, yard, "first")
    waiting = [
        await queue(narrow.sup, yard, narrow.id("later")),
        await queue(narrow.sup, yard, narrow.id("urgent"), priority=5),
    ]
    full = {"scope": "queue", "limit": 2, "held": 2}
    async with refusing(ErrorCode.CAPACITY_EXHAUSTED, Phase.ADMIT, full, retryable=True):
        await narrow.sup.start(yard.command("third"), request_id=narrow.id("third"), queue=True)
    async with refusing(ErrorCode.NOT_RUNNING, Phase.CONTROL, {"run_id": waiting[0].id, "state": "queued"}):
        await narrow.sup.signal(waiting[0].id, 15)
    yard.release(narrow.id("first"))
    await finished(narrow.sup, first, *waiting)
    assert yard.signed_in() == [narrow.id(name) for name in ("first", "urgent", "later")]


async def test_what_is_stopped_in_the_queue_never_runs(narrow: Face, tmp_path: Path) -> None:
    yard = Yard(tmp_path)
    first = await holds(narrow, yard, "first")
    waiting = await queue(narrow.sup, yard, narrow.id("waiting"))
    receipt = await narrow.sup.stop(waiting.id)
    assert (receipt.result, receipt.confirmed, receipt.state) == ("not_started", True, RunState.NOT_STARTED)
    seen = await in_state(narrow.sup, waiting.id, RunState.NOT_STARTED)
    assert (seen.reason, seen.retryable) == ("stopped", False)
    again = await narrow.sup.start(yard.command(narrow.id("waiting")), request_id=narrow.id("waiting"))
    assert (again.id, again.admission, again.state) == (waiting.id, "existing", RunState.NOT_STARTED)
    yard.release(narrow.id("first"))
    await finished(narrow.sup, first)
    assert yard.signed_in() == [narrow.id("first")]


async def holds(face: Face, yard: Yard, name: str) -> Run:
    """A run that has the slot; the test before may have left it a moment ago."""
    return await hold(face.sup, yard, face.id(name))
