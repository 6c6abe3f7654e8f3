"""Attaching over the socket with the product's own client: the same as in process."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from durable_supervisor import ErrorCode, Kind, Observer, SupervisorError
from durable_supervisor.client.aio import AsyncClient
from durable_supervisor.model.terminal import Terminal
from tests.attach.programs import until
from tests.attach.sockets import serving
from tests.cli.helpers import environment
from tests.contract.runs import Runs, check_gapless
from tests.support import PATIENCE, eventually_async

PTY = Terminal(columns=100, rows=30)
VIEWER = """
import asyncio, sys
from durable_supervisor.client.aio import AsyncClient
async def main():
    async with AsyncClient.connect() as client, client.attach(sys.argv[1]) as attached:
        print(await attached.lease(), flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest_asyncio.fixture
async def client(runs: Runs, state_dir: Path) -> AsyncIterator[AsyncClient]:
    async with serving(runs.sup), AsyncClient.connect(state_dir) as connected:
        yield connected


async def test_the_past_the_present_and_the_input(runs: Runs, client: AsyncClient) -> None:
    run = await runs.sh("echo before; while read line; do stty size; done", pty=PTY)
    async with client.attach(run.id) as attached:
        receipt = await attached.write_stdin(b"without a lease\n")
        assert (receipt.op, receipt.result, receipt.run_id) == ("stdin", "written", run.id)
        await until(attached, b"without a lease")
        assert await attached.lease() is True
        assert attached.holds_lease
        receipt = await attached.write_stdin(b"with it\n")
        assert (receipt.op, receipt.result, receipt.detail) == ("stdin", "written", {"bytes": 8})
        assert (await attached.resize(132, 43)).result == "resized"
        await attached.write_stdin(b"\n")
        await until(attached, b"43 132")
        await attached.write_stdin(b"", eof=True)
        rest = [event async for event in attached]
        assert rest[-1].kind == Kind.RUN_FINISHED
        with pytest.raises(SupervisorError) as caught:
            await attached.write_stdin(b"x")
        assert caught.value.code is ErrorCode.NOT_RUNNING
    check_gapless(await runs.events(run))


async def test_a_large_write_goes_in_pieces(runs: Runs, client: AsyncClient) -> None:
    run = await runs.sh("wc -c", stdin="open")
    async with client.attach(run.id) as attached:
        await attached.lease()
        await attached.write_stdin(b"x" * 2_500_000, eof=True)
        assert (await until(attached, b"\n")).strip() == b"2500000"


async def test_one_writer_whoever_asks_where(runs: Runs, client: AsyncClient, state_dir: Path) -> None:
    run = await runs.sh("cat", pty=PTY)
    async with (
        Observer.open(state_dir) as observer,
        observer.attach(run.id) as direct,
        client.attach(run.id) as remote,
    ):
        assert await direct.lease() is True
        assert await remote.lease() is False
        with pytest.raises(SupervisorError) as caught:
            await remote.write_stdin(b"x")
        assert caught.value.code is ErrorCode.WRITER_BUSY
        assert await remote.lease(steal=True) is True
        await asyncio.wait_for(direct.lost.wait(), PATIENCE)
        with pytest.raises(SupervisorError) as caught:
            await direct.write_stdin(b"x")
        assert caught.value.code is ErrorCode.WRITER_BUSY
        assert await direct.lease(steal=True) is True
        await asyncio.wait_for(remote.lost.wait(), PATIENCE)
        assert remote.holds_lease is False
        await direct.close()
        assert await remote.lease() is True
        await remote.close()
        assert await direct.lease() is True


async def test_refusals_are_told_as_in_process(runs: Runs, client: AsyncClient) -> None:
    run = await runs.sh("echo done")
    await runs.wait(run)
    async with client.attach(run.id) as attached:
        for _ in range(2):
            with pytest.raises(SupervisorError) as caught:
                await attached.lease()
            assert caught.value.code is ErrorCode.NOT_RUNNING
        with pytest.raises(SupervisorError) as caught:
            await attached.resize(0, 1)
        assert caught.value.code is ErrorCode.INVALID_REQUEST
    with pytest.raises(SupervisorError) as caught:
        async with client.attach("0" * 16):
            pass
    assert caught.value.code is ErrorCode.UNKNOWN_RUN


async def test_a_restart_of_the_service_costs_nothing(runs: Runs, state_dir: Path) -> None:
    run = await runs.sh("cat", pty=PTY)
    async with serving(runs.sup):
        client = await AsyncClient.connect(state_dir)
        attached = client.attach(run.id)
        await attached.lease()
        events = [await anext(aiter(attached))]
    await eventually_async(lambda: not attached.holds_lease)
    async with serving(runs.sup):
        await attached.write_stdin(b"on it goes\n")  # waits until the lease is ours again
        assert attached.holds_lease
        assert not attached.lost.is_set()
        assert b"on it goes" in await until(attached, b"on it goes")
        assert events[0].seq == 1
        await attached.close()
        await client.close()


async def test_a_service_that_is_away_is_told_as_that(runs: Runs, state_dir: Path) -> None:
    run = await runs.sh("cat", pty=PTY)
    async with serving(runs.sup):
        client = await AsyncClient.connect(state_dir, reconnect=0)
        attached = client.attach(run.id)
    for ask in (attached.lease, lambda: attached.write_stdin(b"x"), lambda: attached.resize(80, 24)):
        with pytest.raises(SupervisorError) as caught:
            await ask()
        assert caught.value.code is ErrorCode.SERVICE_UNAVAILABLE
    async with serving(runs.sup):
        assert await attached.lease() is True
        await attached.close()
        await client.close()


async def test_a_lease_that_another_took_meanwhile_is_not_stolen_back(runs: Runs, state_dir: Path) -> None:
    run = await runs.sh("cat", pty=PTY)
    async with serving(runs.sup):
        client = await AsyncClient.connect(state_dir)
        attached = client.attach(run.id)
        await attached.lease()
    async with runs.sup.attach(run.id) as other:
        await eventually_async(other.lease)
        async with serving(runs.sup):
            await asyncio.wait_for(attached.lost.wait(), PATIENCE)
            with pytest.raises(SupervisorError) as caught:
                await attached.write_stdin(b"x")
            assert caught.value.code is ErrorCode.WRITER_BUSY
            await attached.close()
            await client.close()


async def test_the_lease_ends_with_its_viewer(runs: Runs, client: AsyncClient, state_dir: Path) -> None:
    run = await runs.sh("cat", pty=PTY)
    viewer = await asyncio.create_subprocess_exec(
        sys.executable, "-c", VIEWER, run.id, env=environment(state_dir), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert viewer.stdout is not None
        assert await viewer.stdout.readline() == b"True\n"
        async with client.attach(run.id) as attached:
            assert await attached.lease() is False
            os.kill(viewer.pid, signal.SIGKILL)
            await eventually_async(attached.lease)
    finally:
        if viewer.returncode is None:
            viewer.kill()
        await viewer.wait()
