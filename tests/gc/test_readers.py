"""Whoever reads a run while it is collected: what came is right, and the rest is ``RUN_COLLECTED``."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
from contextlib import aclosing
from pathlib import Path

import pytest

from durable_supervisor import Command, ErrorCode, Kind, Observer, Supervisor, SupervisorError, run
from durable_supervisor.process.identity import read_stat
from tests.cli.helpers import Cli
from tests.crash.harness import Host
from tests.gc.aging import age, files
from tests.support import PATIENCE, eventually

LONG = "i=0; while [ $i -lt 4000 ]; do i=$((i+1)); echo line $i of many that are rather long; done"


async def made(state_dir: Path, count: int = 1) -> list[str]:
    """Runs that are over for long, each with a log of many events."""
    ids = []
    async with Supervisor.open(state_dir) as sup:
        for number in range(count):
            started = await sup.start(Command(argv=["sh", "-c", LONG]), request_id=f"r-{number}")
            ids.append(started.id)
        for run_id in ids:
            await sup.wait(run_id, timeout=PATIENCE)
        await sup.reconcile()
    age(state_dir)
    return ids


@pytest.mark.parametrize("step", ["gc.collected", "gc.unlinking", "gc.removed"])
async def test_a_reader_in_the_middle(state_dir: Path, tmp_path: Path, step: str) -> None:
    """The collection stands still; the reader has begun before it."""
    [run_id] = await made(state_dir)
    async with Observer.open(state_dir) as seen:
        before = await seen.inspect(run_id)
        async with aclosing(seen.follow_pages(run_id, limit=1)) as pages:
            assert (await anext(pages)).events[0].seq == 1
            with Host(state_dir, f"{step}=pause") as host:
                host.opened()
                host.tell("gc")
                eventually(lambda: (stat := read_stat(host.pid)) is not None and stat.state == "T")
                if step == "gc.collected":  # all is still there
                    assert (await anext(pages)).events[0].seq == 2
                else:
                    await refused(anext(pages))
                await refused(seen.events(run_id))
                view = await seen.inspect(run_id)
                assert view.collected_ns is not None
                assert (view.outcome, view.log_health, view.head) == (before.outcome, None, 0)
                export = Cli(state_dir)("export", "--json", run_id, "-o", str(tmp_path / "run.zip"))
                assert (export.code, export.error["code"]) == (3, "RUN_COLLECTED")
                assert not (tmp_path / "run.zip").exists()
                os.kill(host.pid, signal.SIGCONT)


async def refused(reading: object) -> None:
    with pytest.raises(SupervisorError) as error:
        await reading  # type: ignore[misc]
    assert error.value.code is ErrorCode.RUN_COLLECTED


async def test_many_readers_beside_a_collection(state_dir: Path) -> None:
    ids = await made(state_dir, 8)
    expected = hashlib.sha256(b"".join(b"line %d of many that are rather long\n" % n for n in range(1, 4001)))
    ends: list[str] = []

    async def read(seen: Observer, run_id: str) -> None:
        digest = hashlib.sha256()
        try:
            async for event in seen.follow(run_id, kinds={Kind.OUTPUT}):
                digest.update(event.data)
            assert digest.digest() == expected.digest()
            ends.append("whole")
        except SupervisorError as error:
            ends.append(error.code.value)

    async with Supervisor.open(state_dir) as sup, Observer.open(state_dir) as seen:
        reading = [asyncio.create_task(read(seen, run_id)) for run_id in ids * 3]
        await asyncio.sleep(0)  # they have begun; where they are by now is left to chance
        report = await sup.gc(keep=0, apply=True)
        await asyncio.gather(*reading)
    assert (report.count, report.left) == (8, 0)
    assert set(ends) <= {"whole", "RUN_COLLECTED"}
    assert len(ends) == 24
    assert files(state_dir) == []


async def test_a_call_whose_run_is_collected(state_dir: Path) -> None:
    """`run` under the id of a collected run: what it printed is gone, and is not made up."""
    async with Supervisor.open(state_dir) as sup:
        command = Command(argv=["sh", "-c", "echo hello"])
        first = await run(command, request_id="once", supervisor=sup)
        assert first.stdout == b"hello\n"
        await sup.reconcile()
        age(state_dir)
        assert (await sup.gc(keep=0, apply=True)).count == 1
        await refused(run(command, request_id="once", supervisor=sup))
