"""Where no thread is to be had, what was asked for is refused as such, and not done later either."""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from durable_supervisor import Command, ErrorCode, RunState, Supervisor, SupervisorError
from durable_supervisor.journal.connection import Journal
from durable_supervisor.journal.thread import connect
from durable_supervisor.process.threads import in_thread
from durable_supervisor.supervisor.state.ownership_queue import take_in_turn
from durable_supervisor.supervisor.state.state_dir import Ownership, StateDir
from tests.support import PATIENCE

_TOO_LARGE = 1 << 47  # bytes of a stack: more than there are addresses


@contextmanager
def no_threads() -> Iterator[None]:
    before = threading.stack_size(_TOO_LARGE)
    try:
        yield
    finally:
        threading.stack_size(before)


async def test_a_pool_does_not_do_later_what_it_has_refused() -> None:
    done: list[str] = []
    gate = threading.Event()
    with ThreadPoolExecutor(max_workers=2) as pool:
        busy = in_thread(pool, gate.wait)
        with no_threads(), pytest.raises(OSError, match="unavailable") as caught:
            await in_thread(pool, lambda: done.append("refused"))
        assert caught.value.errno == errno.EAGAIN
        gate.set()
        await busy
        await in_thread(pool, lambda: done.append("behind it"))
    assert done == ["behind it"]


async def test_none_is_left_for_a_connection(tmp_path: Path) -> None:
    path = tmp_path / "some.db"
    with no_threads(), pytest.raises(OSError, match="unavailable") as caught:
        await connect(partial(sqlite3.connect, path))
    assert caught.value.errno == errno.EAGAIN
    assert not path.exists()


@pytest.mark.parametrize("stays", [True, False])
async def test_none_is_left_for_the_first_look_at_the_runs(state_dir: Path, stays: bool) -> None:
    opened = Journal.open

    async def last_threads(path: str, *, create: bool) -> Journal:
        journal = await opened(path, create=create)
        threading.stack_size(_TOO_LARGE)
        return journal

    with no_threads(), pytest.MonkeyPatch.context() as patched:
        threading.stack_size(0)
        patched.setattr(Journal, "open", last_threads)
        with pytest.raises(SupervisorError) as caught:
            await Supervisor.open(state_dir, serve_queue=stays)
    assert (caught.value.code, caught.value.retryable) == (ErrorCode.BUSY, True)
    async with Supervisor.open(state_dir):
        pass


async def test_nobody_waits_in_line_without_one(state_dir: Path) -> None:
    place = StateDir(str(state_dir))
    owner = Ownership.try_take(place)
    assert owner is not None
    before = os.listdir("/proc/self/fd")
    with no_threads(), pytest.raises(SupervisorError) as caught:
        await take_in_turn(place, PATIENCE, lambda: None)
    assert (caught.value.code, caught.value.retryable) == (ErrorCode.BUSY, True)
    assert os.listdir("/proc/self/fd") == before
    owner.release()


async def test_a_directory_is_opened_when_there_are_threads_again(state_dir: Path) -> None:
    with no_threads(), pytest.raises(SupervisorError) as caught:
        await Supervisor.open(state_dir)
    assert (caught.value.code, caught.value.retryable) == (ErrorCode.BUSY, True)
    assert "thread" in caught.value.message
    async with Supervisor.open(state_dir) as sup:
        run = await sup.start(Command(argv=["true"]))
        assert (await sup.wait(run.id, timeout=PATIENCE)).state is RunState.FINISHED
