"""A worker has said that all is over: one look at the log, for whoever waits and for the journal."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest_asyncio

from durable_supervisor.journal.connection import Journal
from durable_supervisor.journal.rows import RunRow
from durable_supervisor.model.events import Kind
from durable_supervisor.model.states import RunState, Trigger
from durable_supervisor.reconcile.loop import Reconciler
from durable_supervisor.runlog.format import SYNC, encode_json, encode_record, salt_of
from durable_supervisor.supervisor.following.told import ToldEnds
from durable_supervisor.supervisor.reading.lookup import Lookup
from durable_supervisor.supervisor.state.state_dir import locate
from tests.process.reconcile_bench import GONE, RECEIPT, Bench, open_bench, released
from tests.support import eventually_async

ENDED = [*released(GONE, GONE), (Kind.RUN_FINISHED, RECEIPT)]


class Told:
    """`ToldEnds` with what it stands on; ``changed`` is what its reconciler has folded."""

    def __init__(self, bench: Bench, state_dir: Path) -> None:
        self.changed: list[RunRow] = []
        self.reconciler = Reconciler(
            bench.journal, bench.place, bench.clock, on_change=self.changed.append, hurried=lambda: True
        )
        self.lookup = Lookup(locate(state_dir))
        self.ends = ToldEnds(self.lookup, bench.place, self.reconciler, {}, lambda: False)


@pytest_asyncio.fixture
async def bench(state_dir: Path) -> AsyncIterator[Bench]:
    async with open_bench(state_dir) as opened:
        yield opened


@pytest_asyncio.fixture
async def told(bench: Bench, state_dir: Path) -> AsyncIterator[Told]:
    made = Told(bench, state_dir)
    yield made
    made.ends.close()
    await made.lookup.close()
    await made.reconciler.settle()


def mark_synced(bench: Bench, row: RunRow) -> None:
    """As the worker does behind its last word, once that is on the disk."""
    log = bench.log_path(row)
    end = log.stat().st_size
    meta = encode_json({"synced": end})
    with log.open("ab") as file:
        file.write(
            encode_record(salt_of(row.run_id, row.attempt, 0), end, SYNC, 0, len(ENDED), 1, 1, meta, b"")
        )


async def finished(bench: Bench) -> RunRow:
    row = await bench.run(ENDED)
    mark_synced(bench, row)
    return row


@asynccontextmanager
async def judging(told: Told) -> AsyncIterator[None]:
    task = asyncio.create_task(told.reconciler.run())
    yield
    task.cancel()
    await asyncio.wait([task])


async def test_one_look_serves_whoever_waits_and_the_journal(bench: Bench, told: Told) -> None:
    rows = [await finished(bench) for _ in range(5)]
    for row in rows:
        told.ends.told(row)
    waiting = [told.ends.wait(row.run_id, None) for row in rows for _ in range(2)]
    views = await asyncio.gather(*waiting)
    assert {view.state for view in views if view is not None} == {RunState.FINISHED}
    assert len({id(view) for view in views}) == len(rows)  # the very same for both who wait for a run
    # Nothing was marked, and nobody judges: what was seen is what is folded.
    await eventually_async(lambda: len(told.changed) == len(rows))
    for row in rows:
        folded = await bench.row(row.run_id)
        assert folded.state is RunState.FINISHED
        assert folded.receipt == RECEIPT
        assert folded.evidence is not None
    await eventually_async(lambda: not told.ends.unfolded())


async def test_the_journal_is_told_also_where_nobody_waits(bench: Bench, told: Told) -> None:
    rows = [await finished(bench) for _ in range(2)]
    for row in rows:
        told.ends.told(row)
    assert sorted(told.ends.unfolded()) == sorted(row.run_id for row in rows)
    await eventually_async(lambda: len(told.changed) == len(rows))
    assert told.ends.unfolded() == []


async def test_a_run_that_the_journal_has_moved_on_meanwhile_is_judged_by_what_it_says(
    bench: Bench, told: Told
) -> None:
    row = await finished(bench)
    await bench.move(row, Trigger.RELEASE)  # ``row`` still says that it is starting
    async with judging(told):
        told.ends.told(row)
        view = await told.ends.wait(row.run_id, None)
        assert view is not None
        assert view.state is RunState.FINISHED
        await eventually_async(lambda: told.changed and told.changed[-1].state is RunState.FINISHED)
    assert (await bench.row(row.run_id)).state is RunState.FINISHED


async def test_a_receipt_that_may_not_be_on_the_disk_ends_no_wait(bench: Bench, told: Told) -> None:
    row = await bench.run(ENDED)
    holder = bench.sleeper(bench.log_path(row))
    async with judging(told):
        told.ends.told(row)
        assert await told.ends.wait(row.run_id, None) is None
        assert (await bench.row(row.run_id)).state is not RunState.FINISHED
        holder.kill()
        holder.wait()
        told.reconciler.mark(row.run_id)  # as the end of its channel does
        await eventually_async(lambda: told.changed and told.changed[-1].state is RunState.FINISHED)


async def test_a_log_that_cannot_be_read_harms_no_other(bench: Bench, told: Told) -> None:
    bad, good = await finished(bench), await finished(bench)
    os.truncate(bench.log_path(bad), 10)
    for row in (bad, good):
        told.ends.told(row)
    seen = await asyncio.gather(*(told.ends.wait(row.run_id, None) for row in (bad, good)))
    assert seen[0] is None
    assert seen[1] is not None


async def test_each_waits_for_itself(bench: Bench, told: Told) -> None:
    """One that is cancelled, or out of time, takes no other with it; none waits for what is never told."""
    assert await told.ends.wait("nobody0000000000", None) is None
    row = await finished(bench)
    told.ends.told(row)
    waits = [asyncio.create_task(told.ends.wait(row.run_id, bound)) for bound in (None, 0.0, None)]
    await asyncio.sleep(0)
    waits[0].cancel()
    await asyncio.wait(waits)
    assert waits[0].cancelled()
    view = waits[2].result()
    assert view is not None
    assert view.state is RunState.FINISHED


async def test_who_still_waits_at_the_end_is_let_go(bench: Bench, told: Told) -> None:
    row = await finished(bench)
    told.ends.told(row)
    wait = asyncio.create_task(told.ends.wait(row.run_id, None))
    await asyncio.sleep(0)
    told.ends.close()
    assert await wait is None
    assert told.ends.unfolded() == [row.run_id]  # for the reconciler's last look


async def test_a_long_log_is_left_to_a_look_of_its_own(bench: Bench, told: Told) -> None:
    warning: tuple[str, dict[str, object]] = (Kind.RUN_WARNING, {"reason": "x" * 1000})
    row = await bench.run([*ENDED[:-1], *[warning] * 20, ENDED[-1]])
    mark_synced(bench, row)
    async with judging(told):
        told.ends.told(row)
        assert await told.ends.wait(row.run_id, None) is None
        await eventually_async(lambda: told.changed and told.changed[-1].state is RunState.FINISHED)


async def test_an_end_that_the_journal_cannot_take_yet_is_told_and_tried_again(state_dir: Path) -> None:
    async with await Journal.open(state_dir / "journal.db", busy_seconds=0.1) as journal:
        bench = Bench(state_dir, journal)
        told = Told(bench, state_dir)
        rows = [await finished(bench) for _ in range(3)]
        other = sqlite3.connect(state_dir / "journal.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        async with judging(told):
            for row in rows:
                told.ends.told(row)
            views = await asyncio.gather(*(told.ends.wait(row.run_id, None) for row in rows))
            assert {view.state for view in views if view is not None} == {RunState.FINISHED}
            # Tried in vain: nobody is told by memory any longer, but looks into the log.
            await eventually_async(lambda: not told.ends.unfolded())
            assert told.changed == []
            assert await told.ends.wait(rows[0].run_id, None) is None
            other.execute("ROLLBACK")
            other.close()
            await eventually_async(lambda: len(told.changed) == len(rows))
        assert {(await bench.row(row.run_id)).state for row in rows} == {RunState.FINISHED}
        told.ends.close()
        await told.lookup.close()
        await told.reconciler.settle()


async def test_a_close_in_the_middle_of_a_look_leaves_it_to_the_last_one(bench: Bench, told: Told) -> None:
    """As a supervisor closes: what is being looked at is judged by the reconciler, and folded once."""
    row = await finished(bench)
    told.ends.told(row)
    wait = asyncio.create_task(told.ends.wait(row.run_id, None))
    while not told.ends._under_way:  # noqa: ASYNC110  up to the very turn in which the thread has it
        await asyncio.sleep(0)
    told.lookup.closed = True
    for run_id in told.ends.unfolded():
        told.reconciler.mark(run_id)
    await told.reconciler.settle()
    told.ends.close()
    await asyncio.wait([wait])
    await told.lookup.close()
    assert [one.state for one in told.changed] == [RunState.FINISHED]
    assert (await bench.row(row.run_id)).state is RunState.FINISHED
