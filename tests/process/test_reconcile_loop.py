"""When runs are judged, how many at once, and what a crash in between leaves."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

from durable_supervisor.journal import runs
from durable_supervisor.journal.connection import Journal
from durable_supervisor.model.errors import ErrorCode, SupervisorError
from durable_supervisor.model.events import Kind
from durable_supervisor.model.states import RunState
from durable_supervisor.process.clock import Clock
from durable_supervisor.process.failpoints import VARIABLE
from durable_supervisor.reconcile.act import Judged
from durable_supervisor.reconcile.decide import decide
from durable_supervisor.reconcile.loop import Reconciler
from durable_supervisor.reconcile.observe import look
from tests.process.reconcile_bench import GONE, OTHER_BOOT, RECEIPT, Bench, dispatched, open_bench, released
from tests.support import eventually_async

FIVE_THOUSAND = 5000


@pytest_asyncio.fixture
async def bench(state_dir: Path) -> AsyncIterator[Bench]:
    async with open_bench(state_dir) as opened:
        yield opened


async def test_five_thousand_runs_of_another_boot_at_once(bench: Bench) -> None:
    intents = [bench.intent(boot_id=OTHER_BOOT) for _ in range(FIVE_THOUSAND)]
    for intent in intents:
        bench.write_log(intent, released(GONE, GONE))
    await bench.journal.write(lambda conn: [runs.admit(conn, intent) for intent in intents] and None)
    async with asyncio.timeout(90):  # a wait or a dial for each would take longer
        report = await bench.reconciler.pass_once()
    assert report.judged == FIVE_THOUSAND
    assert {(row.state, row.reason) for row in report.changed} == {(RunState.UNKNOWN, "rebooted")}
    assert len(report.changed) == FIVE_THOUSAND
    assert (await bench.reconciler.pass_once()).judged == 0


async def test_a_mark_gets_its_run_judged_and_many_marks_make_one_look(bench: Bench) -> None:
    changed: list[str] = []
    reconciler = Reconciler(
        bench.journal, bench.place, bench.clock, on_change=lambda row: changed.append(row.run_id)
    )
    row = await bench.run([*released(GONE, GONE), (Kind.RUN_FINISHED, RECEIPT)], running=True)
    task = asyncio.create_task(reconciler.run())
    for _ in range(1000):
        reconciler.mark(row.run_id)
    await eventually_async(lambda: changed)
    assert (await bench.row(row.run_id)).state is RunState.FINISHED
    assert changed == [row.run_id]
    task.cancel()
    await asyncio.wait([task])
    await reconciler.settle()


async def test_folds_that_nobody_waits_for_share_a_commit(bench: Bench) -> None:
    changed: list[str] = []
    reconciler = Reconciler(
        bench.journal,
        bench.place,
        bench.clock,
        on_change=lambda row: changed.append(row.run_id),
        hurried=lambda: False,
    )
    rows = [
        await bench.run([*released(GONE, GONE), (Kind.RUN_FINISHED, RECEIPT)], running=True) for _ in range(5)
    ]
    task = asyncio.create_task(reconciler.run())
    commits, waiting = bench.journal.commits, bench.journal._calls
    for row in rows:
        reconciler.mark(row.run_id)
    await eventually_async(lambda: bool(waiting.patience_ends or changed))
    await bench.journal.write(lambda conn: runs.admit(conn, bench.intent()))
    await eventually_async(lambda: len(changed) == len(rows))
    assert bench.journal.commits - commits in (1, 2)  # 1: their patience was over as we came
    assert [(await bench.row(row.run_id)).state for row in rows] == [RunState.FINISHED] * len(rows)
    task.cancel()
    await asyncio.wait([task])


async def test_a_verdict_of_our_own_is_never_patient(bench: Bench) -> None:
    """What no log says durably must not wait: only the journal will have it."""
    reconciler = Reconciler(bench.journal, bench.place, bench.clock, hurried=lambda: False)
    row = await bench.run(released(GONE, GONE), running=True)
    await reconciler._judge_ids([row.run_id], patient=True)
    assert (await bench.row(row.run_id)).state is RunState.UNKNOWN


async def test_what_is_marked_before_the_end_is_still_judged(bench: Bench) -> None:
    row = await bench.run([*released(GONE, GONE), (Kind.RUN_FINISHED, RECEIPT)], running=True)
    bench.reconciler.mark(row.run_id)
    await bench.reconciler.settle()
    assert (await bench.row(row.run_id)).state is RunState.FINISHED


async def test_a_fold_that_waits_for_its_next_try_has_it_before_the_end(bench: Bench) -> None:
    row = await bench.run([*released(GONE, GONE), (Kind.RUN_FINISHED, RECEIPT)], running=True)
    seen = look(row, bench.place)

    def refuse(conn: sqlite3.Connection) -> None:
        conn.create_function("fail", 0, lambda: 1 // 0)
        conn.execute("CREATE TEMP TRIGGER refused BEFORE UPDATE ON main.runs BEGIN SELECT fail(); END")

    await bench.journal.write(refuse)
    await bench.reconciler.fold_soon([Judged(row, seen, decide(seen))])
    assert (await bench.row(row.run_id)).state is RunState.RUNNING
    await bench.journal.write(lambda conn: conn.execute("DROP TRIGGER refused"))
    await bench.reconciler.settle()
    assert (await bench.row(row.run_id)).state is RunState.FINISHED


async def test_the_slow_pass_finds_what_no_mark_told_of(bench: Bench) -> None:
    reconciler = Reconciler(bench.journal, bench.place, bench.clock, interval=0.02)
    row = await bench.run([dispatched(GONE)])
    task = asyncio.create_task(reconciler.run())

    async def settled() -> bool:
        return (await bench.row(row.run_id)).state is RunState.NOT_STARTED

    await eventually_async(settled)
    task.cancel()
    await asyncio.wait([task])
    await reconciler.settle()


@pytest.mark.parametrize("hurried", [True, False], ids=["hurried", "patient"])
async def test_a_busy_journal_delays_a_verdict_and_invents_none(state_dir: Path, hurried: bool) -> None:
    errors: list[Exception] = []
    async with await Journal.open(state_dir / "journal.db", busy_seconds=0.1) as journal:
        bench = Bench(state_dir, journal)
        row = await bench.run([*released(GONE, GONE), (Kind.RUN_FINISHED, RECEIPT)], running=True)
        other = sqlite3.connect(state_dir / "journal.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        reconciler = Reconciler(
            journal, bench.place, bench.clock, on_error=errors.append, hurried=lambda: hurried
        )
        task = asyncio.create_task(reconciler.run())
        reconciler.mark(row.run_id)
        await eventually_async(lambda: errors)
        assert isinstance(errors[0], SupervisorError)
        assert errors[0].code is ErrorCode.BUSY
        assert await bench.row(row.run_id) == row
        other.execute("ROLLBACK")
        other.close()

        async def settled() -> bool:
            return (await bench.row(row.run_id)).state is RunState.FINISHED

        await eventually_async(settled)
        task.cancel()
        await asyncio.wait([task])
        await reconciler.settle()


async def test_a_cancelled_caller_leaves_nothing_half_done(bench: Bench) -> None:
    rows = [await bench.run(released(GONE, GONE), running=True) for _ in range(20)]
    task = asyncio.create_task(bench.reconciler.pass_once())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await bench.reconciler.settle()
    for row in rows:
        assert (await bench.row(row.run_id)).state is RunState.UNKNOWN


async def test_a_row_that_cannot_be_looked_at_harms_only_itself(bench: Bench) -> None:
    errors: list[Exception] = []
    reconciler = Reconciler(bench.journal, bench.place, bench.clock, on_error=errors.append)
    odd = await bench.run(None, run_id="NOT-A-RUN-ID")
    good = await bench.run(released(GONE, GONE), running=True)
    await reconciler.pass_once()
    assert (await bench.row(good.run_id)).state is RunState.UNKNOWN
    assert await bench.row(odd.run_id) == odd
    assert [type(error) for error in errors] == [ValueError]


async def test_an_unknown_run_is_a_typed_error(bench: Bench) -> None:
    with pytest.raises(SupervisorError) as caught:
        await bench.reconciler.judge("nosuchrun0000000")
    assert caught.value.code is ErrorCode.UNKNOWN_RUN


_PASS = """
import asyncio, sys
from durable_supervisor.journal.connection import Journal
from durable_supervisor.process.clock import Clock, boot_id
from durable_supervisor.reconcile.act import Judged
from durable_supervisor.reconcile.decide import decide
from durable_supervisor.reconcile.loop import Reconciler
from durable_supervisor.reconcile.observe import look
from durable_supervisor.reconcile.observe import Place

async def main(state, directory, *marked):
    async with await Journal.open(state + "/journal.db") as journal:
        place = Place(state + "/runs", directory, boot_id())
        reconciler = Reconciler(journal, place, Clock(), hurried=lambda: False)
        if not marked:
            await reconciler.pass_once()
        for run_id in marked:
            reconciler.mark(run_id)
        await reconciler.run()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("point", ["reconcile.before_word", "reconcile.word", "reconcile.before_fold"])
async def test_a_supervisor_killed_at_any_step_of_a_verdict_converges(state_dir: Path, point: str) -> None:
    async with open_bench(state_dir) as bench:
        retryable = await bench.run([dispatched(GONE)])
        lost = await bench.run(released(GONE, GONE), running=True)
    environment = {**os.environ, VARIABLE: f"{point}=kill", "PYTHONPATH": os.pathsep.join(sys.path)}
    killed = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _PASS, str(state_dir), bench.place.directory_id, env=environment
    )
    assert await killed.wait() == -signal.SIGKILL
    async with await Journal.open(state_dir / "journal.db") as journal:
        reconciler = Reconciler(journal, bench.place, Clock())
        await reconciler.pass_once()
        again = await journal.read(lambda conn: runs.get(conn, retryable.run_id))
        assert again is not None
        assert again.may_retry
        after = await journal.read(lambda conn: runs.get(conn, lost.run_id))
        assert after is not None
        assert (after.state, after.reason) == (RunState.UNKNOWN, "worker_lost")
    assert bench.kinds(retryable) == [Kind.RUN_DISPATCHED, Kind.RUN_NOT_STARTED]
    assert bench.kinds(lost)[-2:] == [Kind.PROGRAM_RELEASED, Kind.RUN_UNKNOWN]


@pytest.mark.parametrize("point", ["reconcile.before_fold", "reconcile.folding"])
async def test_a_kill_before_patient_folds_are_committed_loses_none(state_dir: Path, point: str) -> None:
    async with open_bench(state_dir) as bench:
        rows = [
            await bench.run([*released(GONE, GONE), (Kind.RUN_FINISHED, RECEIPT)], running=True)
            for _ in range(3)
        ]
    environment = {**os.environ, VARIABLE: f"{point}=kill", "PYTHONPATH": os.pathsep.join(sys.path)}
    marked = [row.run_id for row in rows]
    killed = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _PASS, str(state_dir), bench.place.directory_id, *marked, env=environment
    )
    assert await killed.wait() == -signal.SIGKILL
    async with await Journal.open(state_dir / "journal.db") as journal:
        before = [await journal.read(partial(runs.get, run_id=run_id)) for run_id in marked]
        assert {row and row.state for row in before} == {RunState.RUNNING}
        report = await Reconciler(journal, bench.place, Clock()).pass_once()
        assert {row.state for row in report.changed} == {RunState.FINISHED}
        assert len(report.changed) == len(marked)
