"""Where no thread is to be had, what was asked for is refused as such, and not done later either."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from durable_supervisor import Command, ErrorCode, RunState, Supervisor, SupervisorError
from durable_supervisor.journal.connection import Journal
from durable_supervisor.process.threads import in_thread

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


async def test_a_directory_is_opened_when_there_are_threads_again(state_dir: Path) -> None:
    with no_threads(), pytest.raises(SupervisorError) as caught:
        await Supervisor.open(state_dir)
    assert (caught.value.code, caught.value.retryable) == (ErrorCode.BUSY, True)
    assert "thread" in caught.value.message
    async with Supervisor.open(state_dir) as sup:
        run = await sup.start(Command(argv=["true"]))
        assert (await sup.wait(run.id, timeout=30)).state is RunState.FINISHED
