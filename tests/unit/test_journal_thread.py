"""The journal's thread: what is asked of it is done, in order, whatever becomes of those who asked."""

from __future__ import annotations

import asyncio
import gc
import os
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest

from durable_supervisor.journal import thread
from tests.support import PATIENCE, eventually, eventually_async

NAME = "durable-supervisor-journal"


@pytest.fixture(autouse=True)
def nobody_elses() -> None:
    """A test before may have forgotten a journal on purpose: its thread goes with it."""
    eventually(lambda: gc.collect() >= 0 and not threads(), message="a test before has one open")


@pytest.fixture
async def connection(tmp_path: Path) -> AsyncIterator[thread.Connection]:
    connection = await thread.connect(opener(tmp_path / "some.db"))
    await connection.hop(lambda conn: conn.execute("CREATE TABLE noted (word TEXT)"))
    yield connection
    await connection.close()


def opener(path: Path) -> Callable[[], sqlite3.Connection]:
    return partial(sqlite3.connect, path, isolation_level=None)


def note(conn: sqlite3.Connection, word: str) -> None:
    conn.execute("INSERT INTO noted VALUES (?)", (word,))


def noted(conn: sqlite3.Connection) -> list[str]:
    return [str(row[0]) for row in conn.execute("SELECT word FROM noted ORDER BY rowid")]


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == NAME]


class Gate:
    """Work that keeps the thread until it is opened."""

    def __init__(self) -> None:
        self.reached, self._open = threading.Event(), threading.Event()
        self.open = self._open.set

    def __call__(self, conn: sqlite3.Connection) -> None:
        self.reached.set()
        assert self._open.wait(PATIENCE)


async def held(connection: thread.Connection) -> tuple[Gate, asyncio.Task[None]]:
    gate = Gate()
    task = asyncio.ensure_future(connection.hop(gate))
    await eventually_async(gate.reached.is_set)
    return gate, task


async def test_work_has_the_connection_in_a_thread_of_its_own(connection: thread.Connection) -> None:
    [its] = threads()
    assert await connection.hop(lambda conn: threading.current_thread()) is its
    assert its.daemon


async def test_who_awaits_nothing_is_told_in_order_with_who_does(connection: thread.Connection) -> None:
    told: list[object] = []
    connection.submit(partial(note, word="first"), told.append)
    connection.submit(lambda conn: noted(conn)[0], told.append)
    assert await connection.hop(noted) == ["first"]
    assert told == [None, "first"]


@pytest.mark.parametrize("error", [ValueError("wrong"), SystemExit(3), KeyboardInterrupt()])
async def test_what_work_raises_is_its_callers_and_the_thread_goes_on(
    connection: thread.Connection, error: BaseException
) -> None:
    def fail(conn: sqlite3.Connection) -> None:
        raise error

    told: list[object] = []
    connection.submit(fail, told.append)
    await connection.hop(partial(note, word="after it"))
    assert told == [error]
    assert await connection.hop(noted) == ["after it"]


async def test_an_error_is_raised_to_who_awaits(connection: thread.Connection) -> None:
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        await connection.hop(lambda conn: conn.execute("SELECT * FROM unknown"))


async def test_the_work_of_a_caller_that_is_cancelled_is_done_in_its_turn(
    connection: thread.Connection,
) -> None:
    gate, task = await held(connection)
    cancelled = asyncio.ensure_future(connection.hop(partial(note, word="asked for")))
    await asyncio.sleep(0)
    for one in (task, cancelled):
        one.cancel()
    assert [type(end) for end in await asyncio.gather(task, cancelled, return_exceptions=True)] == [
        asyncio.CancelledError
    ] * 2
    gate.open()
    assert await connection.hop(noted) == ["asked for"]


async def test_what_raises_when_it_is_told_keeps_nothing_from_the_others(
    connection: thread.Connection,
) -> None:
    wrong: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: wrong.append(context))

    def fail(result: object) -> None:
        raise ValueError("by who is told")

    gate, task = await held(connection)
    told: list[object] = []
    connection.submit(noted, fail)
    connection.submit(noted, told.append)
    connection.submit(noted, fail)
    gate.open()
    # Without a turn of the loop, so that all of it is told of in one.
    eventually(lambda: connection._calls.empty())
    await task
    assert await connection.hop(noted) == []
    assert told == [[]]
    assert [str(one["exception"]) for one in wrong] == ["by who is told"] * 2


async def test_closing_does_what_was_asked_for_before_and_nothing_after(tmp_path: Path) -> None:
    before = descriptors()
    connection = await thread.connect(opener(tmp_path / "some.db"))
    gate, task = await held(connection)
    told: list[object] = []
    connection.submit(lambda conn: conn.execute("CREATE TABLE made (word TEXT)").fetchall(), told.append)
    closing = asyncio.ensure_future(connection.close())
    await asyncio.sleep(0)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        await connection.hop(noted)
    gate.open()
    await asyncio.gather(task, closing)
    assert told == [[]]
    assert not threads()
    assert descriptors() == before
    await connection.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.submit(noted, told.append)


async def test_a_close_that_is_cancelled_goes_on(tmp_path: Path) -> None:
    connection = await thread.connect(opener(tmp_path / "some.db"))
    gate, task = await held(connection)
    closing = asyncio.ensure_future(connection.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    gate.open()
    await task
    await eventually_async(lambda: not threads())
    await connection.close()


async def test_an_opening_that_is_cancelled_leaves_no_thread() -> None:
    before = descriptors()
    gate, opened = threading.Event(), threading.Event()

    def slowly() -> sqlite3.Connection:
        opened.set()
        assert gate.wait(PATIENCE)
        return sqlite3.connect(":memory:")

    opening = asyncio.ensure_future(thread.Connection(slowly).open())
    await eventually_async(opened.is_set)
    opening.cancel()
    await asyncio.gather(opening, return_exceptions=True)
    gate.set()
    await eventually_async(lambda: not threads() and descriptors() == before)


async def test_one_that_cannot_be_opened_leaves_no_thread(tmp_path: Path) -> None:
    before = descriptors()
    with pytest.raises(sqlite3.OperationalError, match="unable to open"):
        await thread.connect(opener(tmp_path / "nowhere" / "some.db"))
    await eventually_async(lambda: not threads() and descriptors() == before)


async def test_one_that_is_forgotten_leaves_no_thread(tmp_path: Path) -> None:
    """Also where the last that was asked of it knows who asked."""

    class Owner:
        connection: thread.Connection

        def told(self, result: object) -> None:
            answered.set()

    before = descriptors()
    answered = asyncio.Event()
    owner = Owner()
    owner.connection = await thread.connect(opener(tmp_path / "some.db"))
    owner.connection.submit(noted, owner.told)
    await answered.wait()
    del owner
    await eventually_async(lambda: gc.collect() >= 0 and not threads() and descriptors() == before)


def test_a_loop_that_is_closed_without_us_hears_nothing_and_its_thread_goes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async def ask() -> Gate:
        connection = await thread.connect(opener(tmp_path / "some.db"))
        gate, _ = await held(connection)
        connection.submit(lambda conn: conn.execute("CREATE TABLE made (word TEXT)"), _never)
        return gate

    before = descriptors()
    gate = asyncio.run(ask())
    gate.open()
    eventually(lambda: gc.collect() >= 0 and not threads() and descriptors() == before)
    assert sqlite3.connect(tmp_path / "some.db").execute("SELECT count(*) FROM made").fetchone() == (0,)
    assert capfd.readouterr() == ("", "")


_never: Callable[[object], None] = partial(pytest.fail, "nobody is there to be told")
