"""Attaching in process: the past and the present of a run, its input, and who has it."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path

import pytest

from durable_supervisor import Attachment, ErrorCode, Kind, Observer, Run, SupervisorError
from durable_supervisor.model.terminal import Terminal
from tests.attach.programs import until
from tests.cli.helpers import environment
from tests.contract.peers import socket_of
from tests.contract.runs import Runs, check_gapless
from tests.support import PATIENCE, eventually_async

ECHO = 'while read line; do echo "got $line"; done; echo end'
VIEWER = """
import asyncio, sys
from durable_supervisor import Observer
async def main():
    async with Observer.open() as observer, observer.attach(sys.argv[1]) as attached:
        print(await attached.lease(), flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


async def terminal_run(runs: Runs, script: str) -> Run:
    return await runs.sh(script, pty=Terminal(columns=100, rows=30))


async def refused(error: ErrorCode, attached: Attachment) -> None:
    with pytest.raises(SupervisorError) as caught:
        await attached.write_stdin(b"x\n")
    assert caught.value.code is error


async def test_the_past_then_the_present_and_every_event_once(runs: Runs) -> None:
    run = await runs.sh(f"echo before; {ECHO}", stdin="open")
    await runs.printed(run, b"before")
    async with runs.sup.attach(run.id) as attached:
        receipt = await attached.write_stdin(b"one\n")
        assert (receipt.op, receipt.result, receipt.detail["bytes"]) == ("stdin", "written", 4)
        assert await until(attached, b"got one") == b"before\ngot one\n"
        first = attached.cursor
        await attached.write_stdin(b"two\n", eof=True)
        rest = [event async for event in attached]
    assert rest[0].seq == first + 1
    assert rest[-1].kind == Kind.RUN_FINISHED
    check_gapless(await runs.events(run))


async def test_a_program_sees_the_size_of_the_viewer(runs: Runs) -> None:
    run = await terminal_run(runs, "trap 'stty size; exit' WINCH; stty size; while :; do sleep 0.05; done")
    async with runs.sup.attach(run.id) as attached:
        await until(attached, b"30 100")
        assert await attached.lease() is True
        receipt = await attached.resize(132, 43)
        assert (receipt.op, receipt.result) == ("resize", "resized")
        await until(attached, b"43 132")


async def test_a_run_with_pipes_has_no_size(runs: Runs) -> None:
    run = await runs.sh(ECHO, stdin="open")
    async with runs.sup.attach(run.id) as attached:
        with pytest.raises(SupervisorError) as caught:
            await attached.resize(80, 24)
        assert caught.value.code is ErrorCode.INVALID_REQUEST
        with pytest.raises(SupervisorError) as caught:
            await attached.resize(0, 24)
        assert caught.value.details["field"] == "columns"


async def test_one_writer_at_a_time_and_the_other_is_told(runs: Runs) -> None:
    run = await terminal_run(runs, "cat")
    async with runs.sup.attach(run.id) as first, runs.sup.attach(run.id) as second:
        await second.write_stdin(b"free for all\n")
        assert all(await asyncio.gather(first.lease(), first.lease()))
        assert (await second.lease(), second.holds_lease) == (False, False)
        await refused(ErrorCode.WRITER_BUSY, second)
        with pytest.raises(SupervisorError) as caught:
            await second.resize(80, 24)
        assert caught.value.code is ErrorCode.WRITER_BUSY
        with pytest.raises(SupervisorError) as caught:
            await runs.sup.write_stdin(run.id, b"x\n")
        assert caught.value.code is ErrorCode.WRITER_BUSY
        assert not first.lost.is_set()

        assert await second.lease(steal=True) is True
        await asyncio.wait_for(first.lost.wait(), PATIENCE)
        assert first.holds_lease is False
        await refused(ErrorCode.WRITER_BUSY, first)
        await second.write_stdin(b"mine now\n")
        assert b"mine now" in await until(first, b"mine now")
        await second.close()
        assert await first.lease() is True
        assert not first.lost.is_set()


@pytest.mark.parametrize("stopped", [False, True])
async def test_a_lease_under_way_is_not_taken_after_the_close(runs: Runs, stopped: bool) -> None:
    """It still dials; or it has asked a worker that does not answer."""
    run = await terminal_run(runs, "cat")
    worker = await runs.worker(run.id)
    await socket_of(runs, run)
    async with runs.sup.attach(run.id) as attached, runs.sup.attach(run.id) as other:
        if stopped:
            os.kill(worker.pid, signal.SIGSTOP)
        try:
            asking = [asyncio.create_task(attached.lease()) for _ in range(2)]
            if stopped:
                await eventually_async(lambda: attached._line.connected)
            else:
                await asyncio.sleep(0)  # it has begun
            await attached.close()
            answers = await asyncio.gather(*asking, return_exceptions=True)
        finally:
            os.kill(worker.pid, signal.SIGCONT)
        assert [one.code for one in answers if isinstance(one, SupervisorError)] == [
            ErrorCode.SUPERVISOR_CLOSED
        ] * 2
        assert not attached.holds_lease
        await eventually_async(other.lease)  # a worker that was stopped sees the hang-up late
        await other.close()
        assert await attached.lease() is True


async def test_the_lease_ends_with_its_viewer(runs: Runs, state_dir: Path) -> None:
    run = await terminal_run(runs, "cat")
    for signo in (signal.SIGKILL, signal.SIGHUP):
        viewer = await asyncio.create_subprocess_exec(
            sys.executable, "-c", VIEWER, run.id, env=environment(state_dir), stdout=subprocess.PIPE
        )
        try:
            assert viewer.stdout is not None
            assert await viewer.stdout.readline() == b"True\n"
            async with runs.sup.attach(run.id) as attached:
                assert await attached.lease() is False
                viewer.send_signal(signo)
                await eventually_async(attached.lease)
                await attached.write_stdin(b"on it goes\n")
                await until(attached, b"on it goes")
        finally:
            if viewer.returncode is None:
                viewer.kill()
            await viewer.wait()
    assert (await runs.sup.inspect(run.id)).state.value == "running"


async def test_a_run_that_is_over_is_replayed_and_takes_nothing(runs: Runs) -> None:
    run = await runs.sh("echo all there was")
    await runs.wait(run)
    async with runs.sup.attach(run.id) as attached:
        events = [event async for event in attached]
        assert b"all there was\n" in [event.data for event in events]
        assert events[-1].kind == Kind.RUN_FINISHED
        assert attached.cursor == events[-1].seq
        await refused(ErrorCode.NOT_RUNNING, attached)
        with pytest.raises(SupervisorError) as caught:
            await attached.lease()
        assert caught.value.code is ErrorCode.NOT_RUNNING


async def test_the_end_of_a_run_is_no_theft(runs: Runs) -> None:
    run = await terminal_run(runs, "read line; exit 7")
    async with runs.sup.attach(run.id) as attached:
        await attached.lease()
        await attached.write_stdin(b"\n")
        assert [event.kind async for event in attached][-1] == Kind.RUN_FINISHED
        await eventually_async(lambda: not attached.holds_lease)
        assert not attached.lost.is_set()


async def test_an_unknown_run_is_told_at_once(runs: Runs) -> None:
    with pytest.raises(SupervisorError) as caught:
        async with runs.sup.attach("0" * 16):
            pass
    assert caught.value.code is ErrorCode.UNKNOWN_RUN


async def test_a_viewer_that_does_not_read_costs_only_itself(runs: Runs, state_dir: Path) -> None:
    """It holds no bytes of the program back: they wait in the log."""
    size = int(os.environ.get("ATTACH_MEGABYTES", "20")) * 1024 * 1024
    done = state_dir.parent / "done"
    script = f"read go; head -c {size} /dev/zero | tr '\\0' x; touch {shlex.quote(str(done))}; cat"
    run = await runs.sh(script, stdin="open", max_stdout_bytes=2 * size)
    async with (
        Observer.open(state_dir) as other,
        other.attach(run.id) as idle,
        aclosing(aiter(idle)) as events,
    ):
        seen = [await anext(events)]
        await runs.sup.write_stdin(run.id, b"\n")
        await eventually_async(done.exists, timeout=60)
        assert idle.cursor == seen[0].seq
        await runs.sup.write_stdin(run.id, b"", eof=True)
        seen += [event async for event in events]
    check_gapless(seen)
    assert sum(len(event.data) for event in seen) == size
