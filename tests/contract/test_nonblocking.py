"""Events that reach a follower without a thread, and what happens to them in between."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import aclosing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from durable_supervisor import Event, Observer, RunState
from durable_supervisor.model.events import Kind
from tests.contract.peers import socket_of
from tests.contract.runs import Runs, check_gapless, open_runs
from tests.support import PATIENCE, can_read_nonblocking, eventually_async

ECHO = "while read line; do echo $line; done"


@pytest.fixture
def memory_dir() -> Iterator[Path]:
    """On a file system without reads that never wait."""
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("no /dev/shm here")
    with TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


def needs_nonblocking_reads(directory: Path) -> None:
    if not can_read_nonblocking(directory):
        pytest.skip("this file system has no reads that never wait")


async def test_an_event_needs_no_thread(runs: Runs, tmp_path: Path) -> None:
    """All of the supervisor's hang, on a disk, say: what the program writes is followed all the same."""
    needs_nonblocking_reads(tmp_path)
    gate = tmp_path / "gate"
    run = await runs.sh(f"until [ -e {gate} ]; do echo tick; sleep 0.02; done; exec cat", stdin="open")
    await socket_of(runs, run)
    hang = threading.Event()
    async with aclosing(runs.sup.follow(run.id)) as events:
        async for event in events:
            if event.kind == Kind.OUTPUT:
                break
        for _ in range(10):  # it is where the log ends, and its worker tells it
            await anext(events)
        hanging = [runs.sup._lookup.threads.submit(hang.wait) for _ in range(4)]
        try:
            async with asyncio.timeout(PATIENCE):
                ticks = [await anext(events) for _ in range(20)]
        finally:
            hang.set()
        assert all(job.result() for job in hanging)
        gate.touch()
    assert {event.data for event in ticks} == {b"tick\n"}
    assert [event.seq for event in ticks] == list(range(ticks[0].seq, ticks[0].seq + 20))
    await runs.sup.stop(run.id)


async def test_a_file_system_without_such_reads(memory_dir: Path) -> None:
    async with open_runs(memory_dir) as runs:
        assert not can_read_nonblocking(memory_dir)
        run = await runs.sh(ECHO, stdin="open")
        async with aclosing(runs.sup.follow(run.id, kinds={Kind.OUTPUT})) as events:
            for number in range(10):
                await runs.sup.write_stdin(run.id, b"%d\n" % number)
                assert (await anext(events)).data == b"%d\n" % number
        await runs.sup.stop(run.id)


async def test_over_many_segments_with_fast_and_slow_followers(runs: Runs) -> None:
    """Segments of 4 KiB, and a cap beyond which their output goes: each seq is answered once."""
    line = "i=$((i+1)); echo line $i; [ $((i % 10)) -ne 0 ] || sleep 0.01"
    script = f"i=0; while [ $i -lt 400 ]; do {line}; done"
    run = await runs.sh(script, max_stdout_bytes=2048, max_stderr_bytes=2048)

    async def followed(seen: Observer, pause: float) -> list[Event]:
        found = []
        async for event in seen.follow(run.id):
            found.append(event)
            await asyncio.sleep(pause)
        return found

    async with Observer.open(runs.state_dir) as other:
        all_of_them = await asyncio.gather(
            *(followed(seen, pause) for seen in (runs.sup, other) for pause in (0, 0, 0.002))
        )
    whole = {event.seq: event for event in await runs.events(run)}
    for events in all_of_them:
        check_gapless(events)
        assert events[-1].kind == Kind.RUN_FINISHED
        for event in events:
            if event.seq in whole and Kind.OUTPUT_DROPPED not in (event.kind, whole[event.seq].kind):
                assert event == whole[event.seq]
    assert (await runs.wait(run)).state is RunState.FINISHED


async def test_a_follower_that_has_left_holds_no_file(runs: Runs) -> None:
    run = await runs.sh(ECHO, stdin="open")
    await socket_of(runs, run)

    def held() -> int:
        found = 0
        for fd in os.listdir("/proc/self/fd"):
            with suppress(FileNotFoundError):  # that of the listing itself
                found += f"/{run.id}.a1" in os.readlink(f"/proc/self/fd/{fd}")
        return found

    for number in range(5):
        async with aclosing(runs.sup.follow(run.id, kinds={Kind.OUTPUT})) as events:
            await runs.sup.write_stdin(run.id, b"%d\n" % number)
            async for event in events:
                if event.data == b"%d\n" % number:
                    break
    await eventually_async(lambda: held() == 0)
    await runs.sup.stop(run.id)
