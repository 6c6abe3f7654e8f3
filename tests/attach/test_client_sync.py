"""Attaching over the socket from threads: the same as from an event loop."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
import pytest_asyncio

from durable_supervisor import Client, ErrorCode, Kind, SupervisorError
from durable_supervisor.client.attach_sync import SyncAttachment
from durable_supervisor.model.terminal import Terminal
from tests.attach.sockets import serving
from tests.contract.runs import Runs, check_gapless
from tests.support import PATIENCE, eventually, eventually_async

PTY = Terminal(columns=100, rows=30)


@pytest_asyncio.fixture
async def client(runs: Runs, state_dir: Path) -> AsyncIterator[Client]:
    async with serving(runs.sup):
        with await asyncio.to_thread(Client.connect, state_dir) as connected:
            yield connected


def until(attached: SyncAttachment, text: bytes) -> bytes:
    seen = b""
    with closing(iter(attached)) as events:
        for event in events:
            seen += event.data
            if text in seen:
                return seen
    raise AssertionError(f"{text!r} was not in {seen!r}")


async def test_the_past_the_present_and_the_input(runs: Runs, client: Client) -> None:
    run = await runs.sh("echo before; while read line; do stty size; done", pty=PTY)

    def view() -> None:
        with client.attach(run.id) as attached:
            receipt = attached.write_stdin(b"without a lease\n")
            assert (receipt.op, receipt.result, receipt.run_id) == ("stdin", "written", run.id)
            until(attached, b"without a lease")
            assert attached.lease() is True
            assert attached.holds_lease
            receipt = attached.write_stdin(b"with it\n")
            assert (receipt.op, receipt.result, receipt.detail) == ("stdin", "written", {"bytes": 8})
            assert attached.resize(132, 43).result == "resized"
            attached.write_stdin(b"\n")
            until(attached, b"43 132")
            attached.write_stdin(b"", eof=True)
            rest = list(attached)
            assert rest[-1].kind == Kind.RUN_FINISHED
            assert attached.cursor == rest[-1].seq
            with pytest.raises(SupervisorError) as caught:
                attached.write_stdin(b"x")
            assert caught.value.code is ErrorCode.NOT_RUNNING

    await asyncio.to_thread(view)
    check_gapless(await runs.events(run))


async def test_one_thread_reads_what_others_type(runs: Runs, client: Client) -> None:
    run = await runs.sh("cat", stdin="open")

    def view() -> list[bytes]:
        with client.attach(run.id) as attached:
            assert attached.lease()
            typing = [
                threading.Thread(target=attached.write_stdin, args=(b"%d\n" % n * 50_000,)) for n in range(4)
            ]
            for thread in typing:
                thread.start()

            def finish() -> None:
                for one in typing:
                    one.join()
                attached.write_stdin(b"", eof=True)

            finishing = threading.Thread(target=finish)
            finishing.start()
            printed = b"".join(event.data for event in attached)
            finishing.join()
            return printed.split()

    lines = await asyncio.to_thread(view)
    assert lines == [line for first in range(0, len(lines), 50_000) for line in [lines[first]] * 50_000]
    assert sorted(set(lines)) == [b"0", b"1", b"2", b"3"]


async def test_one_writer_whoever_asks_where(runs: Runs, client: Client) -> None:
    run = await runs.sh("cat", pty=PTY)
    async with runs.sup.attach(run.id) as direct:
        assert await direct.lease() is True
        with closing(client.attach(run.id)) as remote:
            assert await asyncio.to_thread(remote.lease) is False
            with pytest.raises(SupervisorError) as caught:
                await asyncio.to_thread(remote.write_stdin, b"x")
            assert caught.value.code is ErrorCode.WRITER_BUSY
            assert await asyncio.to_thread(lambda: remote.lease(steal=True)) is True
            await asyncio.wait_for(direct.lost.wait(), PATIENCE)
            assert await direct.lease(steal=True) is True
            await eventually_async(lambda: remote.lost.is_set())
            assert remote.holds_lease is False
            await direct.close()
            assert await asyncio.to_thread(remote.lease) is True
            assert not remote.lost.is_set()
        async with runs.sup.attach(run.id) as other:  # the lease has ended with its viewer
            await eventually_async(other.lease)


async def test_refusals_are_told_as_in_process(runs: Runs, client: Client) -> None:
    run = await runs.sh("echo done")
    await runs.wait(run)

    def view() -> list[ErrorCode]:
        codes = []
        with client.attach(run.id) as attached:
            for ask in (attached.lease, attached.lease, lambda: attached.resize(0, 1)):
                with pytest.raises(SupervisorError) as caught:
                    ask()
                codes.append(caught.value.code)
        with pytest.raises(SupervisorError) as caught, client.attach("0" * 16):
            pass
        return [*codes, caught.value.code]

    assert await asyncio.to_thread(view) == [
        ErrorCode.NOT_RUNNING,
        ErrorCode.NOT_RUNNING,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_RUN,
    ]


async def test_a_restart_of_the_service_costs_nothing(runs: Runs, state_dir: Path) -> None:
    run = await runs.sh("cat", pty=PTY)
    async with serving(runs.sup):
        client = await asyncio.to_thread(Client.connect, state_dir)
        attached = client.attach(run.id)
        assert await asyncio.to_thread(attached.lease)
    await eventually_async(lambda: not attached.holds_lease)
    with closing(client), closing(attached):
        writing = asyncio.create_task(asyncio.to_thread(attached.write_stdin, b"on it goes\n"))
        async with serving(runs.sup):
            await writing  # has waited until the lease was ours again
            assert attached.holds_lease
            assert not attached.lost.is_set()
            assert b"on it goes" in await asyncio.to_thread(until, attached, b"on it goes")


async def test_a_lease_that_another_took_meanwhile_is_not_stolen_back(runs: Runs, state_dir: Path) -> None:
    run = await runs.sh("cat", pty=PTY)
    async with serving(runs.sup):
        client = await asyncio.to_thread(Client.connect, state_dir)
        attached = client.attach(run.id)
        assert await asyncio.to_thread(attached.lease)
    with closing(client), closing(attached):
        async with runs.sup.attach(run.id) as other:
            await eventually_async(other.lease)
            async with serving(runs.sup):
                with pytest.raises(SupervisorError) as caught:
                    await asyncio.to_thread(attached.write_stdin, b"x")
                assert caught.value.code is ErrorCode.WRITER_BUSY
                assert attached.lost.is_set()
                assert not attached.holds_lease


async def test_a_service_that_is_away_is_told_as_that(runs: Runs, state_dir: Path) -> None:
    run = await runs.sh("cat", pty=PTY)
    async with serving(runs.sup):
        client = await asyncio.to_thread(lambda: Client.connect(state_dir, reconnect=0))
        attached = client.attach(run.id)
        assert await asyncio.to_thread(attached.lease)
    with closing(client), closing(attached):
        for ask in (attached.lease, lambda: attached.write_stdin(b"x"), lambda: attached.resize(80, 24)):
            with pytest.raises(SupervisorError) as caught:
                await asyncio.to_thread(ask)
            assert caught.value.code is ErrorCode.SERVICE_UNAVAILABLE
        async with serving(runs.sup):
            assert await asyncio.to_thread(attached.lease) is True
            await asyncio.to_thread(attached.close)


FORKING = """
import os, sys, time
from durable_supervisor import Client
with Client.connect(sys.argv[1]) as client:
    with client.attach(sys.argv[2]) as attached:
        assert attached.lease()
        attached._line._lock.acquire()  # as the listening thread may have it when it forks
        child = os.fork()
        if child:
            attached._line._lock.release()
        else:
            try:
                attached.write_stdin(b"x")
            except Exception as error:
                attached.close()
                os._exit(7 if error.code == "FORKED_COPY" else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        attached.write_stdin(b"still ours\\n")
        assert attached.holds_lease
"""


async def test_a_forked_copy_leaves_the_line_alone(runs: Runs, client: Client) -> None:
    run = await runs.sh("cat", pty=PTY)
    words = [sys.executable, "-c", FORKING, str(runs.state_dir), run.id]
    forking = await asyncio.create_subprocess_exec(*words, stderr=asyncio.subprocess.PIPE)
    _, errors = await asyncio.wait_for(forking.communicate(), PATIENCE)
    assert forking.returncode == 0, errors.decode()


async def test_an_input_that_waits_is_given_up_by_closing(runs: Runs, client: Client) -> None:
    """The program does not read: what arrived of it, nobody can say."""
    run = await runs.sh("sleep 300", stdin="open")
    codes: list[ErrorCode] = []

    def view() -> None:
        with client.attach(run.id) as attached:
            assert attached.lease()

            def write() -> None:
                with pytest.raises(SupervisorError) as caught:
                    attached.write_stdin(b"x" * 1_000_000)
                codes.append(caught.value.code)

            writing = threading.Thread(target=write)
            writing.start()
            eventually(
                lambda: [one for one in client.events(run.id).events if one.detail.get("op") == "stdin"]
            )
            attached.close()
            attached.close()
            writing.join()
            assert attached.stop(grace=5).confirmed

    await asyncio.to_thread(view)
    assert codes == [ErrorCode.SUBMISSION_INDETERMINATE]
