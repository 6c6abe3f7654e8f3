"""The writer: group commit, isolation of failures, cancellation."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from durable_supervisor.journal import calls, meta, runs
from durable_supervisor.journal.calls import FEW, PATIENCE_SECONDS
from durable_supervisor.journal.checkpoints import CALLS
from durable_supervisor.journal.connection import Journal
from durable_supervisor.journal.reader import JournalReader
from durable_supervisor.model.errors import ErrorCode, SupervisorError
from tests.support import eventually_async
from tests.unit.journal_helpers import intent


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    async with await Journal.open(tmp_path / "state" / "journal.db") as journal:
        yield journal


def put(key: str, value: str = "x") -> Callable[[sqlite3.Connection], None]:
    return lambda conn: meta.put(conn, key, value)


def admit(serial: int) -> Callable[[sqlite3.Connection], str]:
    return lambda conn: runs.admit(conn, intent(serial)).kind


async def count(journal: Journal) -> int:
    return await journal.read(lambda conn: int(conn.execute("SELECT count(*) FROM meta").fetchone()[0]))


async def at_rest(journal: Journal) -> None:
    """Return once it has done what follows on an answer."""
    await eventually_async(lambda: not journal._busy)


async def test_callers_that_wait_together_share_a_transaction(journal: Journal) -> None:
    begun: list[str] = []
    await journal.write(lambda conn: conn.set_trace_callback(begun.append), durable=False)
    assert begun[-1] == "PRAGMA synchronous = FULL"  # nobody's start has to wait for that
    begun.clear()
    await at_rest(journal)

    kinds = await asyncio.gather(*(journal.write(admit(serial)) for serial in range(1, 101)))
    assert kinds == ["new"] * 100
    assert begun.count("BEGIN IMMEDIATE") == 2, "the first took them for one that comes alone"
    assert begun[0] == "BEGIN IMMEDIATE"
    begun.clear()
    await asyncio.gather(*(journal.write(admit(serial)) for serial in range(101, 201)))
    assert begun.count("BEGIN IMMEDIATE") == 1
    begun.clear()
    await journal.write(lambda conn: None, durable=False)
    soon, lasts = "PRAGMA synchronous = NORMAL", "PRAGMA synchronous = FULL"
    assert begun == [soon, "BEGIN IMMEDIATE", "COMMIT", lasts]


def fold(journal: Journal, count: int) -> list[asyncio.Task[None]]:
    """So many patient calls."""
    works = [put(f"fold-{n}") for n in range(count)]
    return [asyncio.create_task(journal.write(work, durable=False, patient=True)) for work in works]


async def test_patient_calls_share_the_commit_of_several_that_are_not(journal: Journal) -> None:
    commits = journal.commits
    folds = fold(journal, 3)
    await asyncio.sleep(0)
    await asyncio.gather(journal.write(put("intent")), journal.write(put("other")))
    assert all(one.done() for one in folds)
    assert journal.commits == commits + 1


async def test_a_stream_of_lone_calls_takes_patient_ones_along_in_the_end(journal: Journal) -> None:
    [one] = fold(journal, 1)
    await asyncio.sleep(0)
    while not one.done():
        await journal.write(put("intent"))
    assert await journal.read(lambda conn: meta.get(conn, "fold-0")) == "x"


async def test_patient_calls_have_an_end_of_their_patience(journal: Journal) -> None:
    await asyncio.gather(*fold(journal, 3))
    assert await count(journal) == 3
    assert journal._later is None  # nothing wakes a journal at rest


async def test_idle_work_is_patient_calls_once_they_are_worth_it(journal: Journal) -> None:
    await journal.write(put("intent"))
    await at_rest(journal)
    folds = fold(journal, FEW - 1)
    await asyncio.sleep(0)
    journal.run_idle_work()
    assert not journal._busy
    folds += fold(journal, 1)
    await asyncio.sleep(0)
    commits = journal.commits
    journal.run_idle_work()
    assert journal._busy
    assert journal._later is None, "nothing of them waits for the clock any more"
    await asyncio.gather(*folds)
    assert journal.commits == commits + 1


async def test_who_comes_alone_leaves_patient_calls_their_end(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where that comes while the lone one is at work: they go behind it."""
    monkeypatch.setattr(calls, "PATIENCE_SECONDS", 1.0)  # longer than others may have the processor
    await journal.write(put("intent"))
    await at_rest(journal)
    commits, may_end = journal.commits, threading.Event()
    [patient] = fold(journal, 1)
    await asyncio.sleep(0)
    ends = journal._later
    assert ends is not None
    alone = asyncio.create_task(journal.write(lambda conn: may_end.wait()))
    await asyncio.sleep(0)
    assert journal._later is ends
    await eventually_async(lambda: journal._later is None)
    assert journal._busy
    assert not patient.done()
    may_end.set()
    await asyncio.gather(alone, patient)
    assert journal.commits == commits + 2


async def test_patience_that_ends_as_a_batch_is_about_to_begin_begins_no_second_one(journal: Journal) -> None:
    loop, commits, may_end = asyncio.get_running_loop(), journal.commits, threading.Event()
    calls: list[asyncio.Task[object]] = [
        asyncio.create_task(journal.write(lambda conn: may_end.wait(), durable=False, patient=True))
    ]
    await asyncio.sleep(0)
    over = loop.time() + PATIENCE_SECONDS
    while loop.time() <= over:
        pass  # so that the timer is due in the next turn of the loop, behind `hurry`
    loop.call_soon(journal.hurry)
    for key in ("second", "third"):
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        calls.append(asyncio.create_task(journal.write(put(key))))
    may_end.set()
    await asyncio.gather(*calls)
    assert journal.commits == commits + 2, "what came while the first was at work shares the next"


@pytest.mark.parametrize("hurry", [False, True])
async def test_closing_does_not_lose_patient_calls(tmp_path: Path, hurry: bool) -> None:
    journal = await Journal.open(tmp_path / "journal.db")
    folds = fold(journal, 3 * FEW)
    await asyncio.sleep(0)
    if hurry:
        journal.hurry()
    await journal.close()
    await asyncio.gather(*folds)
    with JournalReader.open(tmp_path / "journal.db") as reader:
        assert reader.read(lambda conn: meta.get(conn, "fold-0")) == "x"


async def test_one_failing_work_harms_only_itself(journal: Journal) -> None:
    def fails(conn: sqlite3.Connection) -> None:
        meta.put(conn, "half", "x")
        raise LookupError("mine")

    def iterates(conn: sqlite3.Connection) -> None:
        meta.put(conn, "half", "x")
        raise StopIteration

    def breaks_sql(conn: sqlite3.Connection) -> None:
        meta.put(conn, "half", "x")
        conn.execute("INSERT INTO meta VALUES (NULL, NULL)")

    works = [put("a"), fails, put("b"), iterates, breaks_sql, put("c")]
    results = await asyncio.gather(*(journal.write(work) for work in works), return_exceptions=True)
    assert [type(result) for result in results] == [
        type(None), LookupError, type(None), RuntimeError, sqlite3.IntegrityError, type(None)
    ]  # fmt: skip
    assert isinstance(results[1], LookupError)
    assert results[1].__context__ is None, "of the first try nothing is told"
    assert await journal.read(lambda conn: meta.get(conn, "half")) is None
    assert await count(journal) == 3


async def test_work_that_ends_the_transaction_takes_no_other_with_it(journal: Journal) -> None:
    def ends(conn: sqlite3.Connection) -> None:
        conn.execute("ROLLBACK")

    results = await asyncio.gather(
        *(journal.write(work) for work in (put("a"), ends, put("b"))),
        return_exceptions=True,
    )
    assert results[0] is results[2] is None
    assert "transaction ended" in str(results[1])
    assert await count(journal) == 2


async def test_a_cancelled_caller_leaves_all_or_nothing(journal: Journal) -> None:
    loop = asyncio.get_running_loop()
    begun, go = asyncio.Event(), threading.Event()

    def slow(conn: sqlite3.Connection) -> None:
        meta.put(conn, "slow-1", "x")
        loop.call_soon_threadsafe(begun.set)
        assert go.wait(10)
        meta.put(conn, "slow-2", "x")

    first = asyncio.create_task(journal.write(slow))
    await begun.wait()
    waiting = asyncio.create_task(journal.write(lambda conn: meta.put(conn, "never", "x")))
    await asyncio.sleep(0)
    first.cancel()
    waiting.cancel()
    go.set()
    await asyncio.gather(first, waiting, return_exceptions=True)
    await journal.write(lambda conn: None)
    assert await count(journal) == 2
    assert await journal.read(lambda conn: meta.get(conn, "never")) is None


async def test_closed_means_closed_and_closing_finishes_the_work(tmp_path: Path) -> None:
    journal = await Journal.open(tmp_path / "journal.db")
    writes = [asyncio.create_task(journal.write(put(f"k{n}"))) for n in range(20)]
    await asyncio.sleep(0)
    await asyncio.gather(journal.close(), journal.close())
    await asyncio.gather(*writes)
    for call in (journal.write, journal.read):
        with pytest.raises(SupervisorError) as closed:
            await call(lambda conn: None)
        assert closed.value.code is ErrorCode.SUPERVISOR_CLOSED
    assert sorted(os.listdir(tmp_path)) == ["journal.db"]  # checkpointed: nothing left beside it
    with JournalReader.open(tmp_path / "journal.db") as reader:
        assert reader.read(lambda conn: meta.get(conn, "k19")) == "x"


async def test_the_wal_is_written_back_between_commits(journal: Journal) -> None:
    """Long before SQLite would do it, in the commit of somebody who waits."""
    before = os.path.getsize(journal.path)
    for serial in range(1, CALLS + 1):
        await journal.write(admit(serial))
    await eventually_async(lambda: os.path.getsize(journal.path) > before)
    length = os.path.getsize(f"{journal.path}-wal")
    for serial in range(CALLS + 1, CALLS + 11):
        await journal.write(admit(serial))
    assert os.path.getsize(f"{journal.path}-wal") == length  # it is used again from its beginning


async def test_a_forked_copy_is_refused(journal: Journal) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            journal._check_open()
        except SupervisorError as error:
            os._exit(0 if error.code is ErrorCode.FORKED_COPY else 1)
        os._exit(2)
    assert os.waitpid(pid, 0)[1] == 0  # noqa: ASYNC222  # ends at once


async def test_a_full_disk_is_typed_and_harms_only_what_did_not_fit(journal: Journal) -> None:
    def fill(conn: sqlite3.Connection) -> None:
        meta.put(conn, "big", "x" * 1_000_000)

    # SQLite's own bound stands in for the disk's: the same SQLITE_FULL.
    pages = await journal.read(lambda conn: int(conn.execute("PRAGMA page_count").fetchone()[0]))
    await journal.write(lambda conn: conn.execute(f"PRAGMA max_page_count = {pages + 5}").fetchone())
    results = await asyncio.gather(
        *(journal.write(work) for work in (put("a"), fill, put("b"))), return_exceptions=True
    )
    assert results[0] is results[2] is None
    assert isinstance(results[1], SupervisorError)
    assert (results[1].code, results[1].retryable) == (ErrorCode.NO_SPACE, True)
    assert await count(journal) == 2
    await journal.write(lambda conn: conn.execute("PRAGMA max_page_count = 1000000").fetchone())
    await journal.write(fill)
    assert await count(journal) == 3


async def test_a_host_that_cancels_every_task_leaves_the_journal_at_work(tmp_path: Path) -> None:
    """Nobody is left waiting, what had begun is applied whole, and closing still works."""
    journal = await Journal.open(tmp_path / "journal.db")
    gate, begun = threading.Event(), threading.Event()

    def slow(conn: sqlite3.Connection) -> None:
        begun.set()
        assert gate.wait(10)
        meta.put(conn, "slow", "x")

    writes = [asyncio.create_task(journal.write(slow))]
    await asyncio.to_thread(begun.wait, 10)
    writes.append(asyncio.create_task(journal.write(put("a"))))
    await asyncio.sleep(0)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    results = await asyncio.gather(*writes, return_exceptions=True)
    assert [type(result) for result in results] == [asyncio.CancelledError] * 2
    gate.set()
    await journal.write(put("b"))
    assert await journal.read(lambda conn: [meta.get(conn, key) for key in ("slow", "a", "b")]) == [
        "x",
        None,
        "x",
    ]
    await journal.close()


async def test_a_cancelled_close_goes_on(tmp_path: Path) -> None:
    journal = await Journal.open(tmp_path / "journal.db")
    closing = asyncio.create_task(journal.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    await journal.close()
    assert os.listdir(tmp_path) == ["journal.db"]
