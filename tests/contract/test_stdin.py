"""Stdin: none, given, or open for later writes; every byte answered for."""

from __future__ import annotations

import asyncio
import hashlib

import pytest

from durable_supervisor.model.errors import ErrorCode, SupervisorError
from durable_supervisor.model.events import Kind
from tests.contract.runs import Marker, Runs, appear, gone
from tests.support import eventually_async

MIB = 1024 * 1024


async def test_without_stdin_the_program_reads_an_end_of_file(runs: Runs) -> None:
    run = await runs.sh("cat; readlink /proc/self/fd/0")
    await runs.wait(run)
    assert await runs.output(run) == b"/dev/null\n"


@pytest.mark.parametrize("data", [b"", b"one\n", bytes(range(256)), b"x" * 200_000])
async def test_given_bytes_arrive_and_then_the_end(runs: Runs, data: bytes) -> None:
    run = await runs.start(["cat"], stdin=data)
    receipt = await runs.receipt(run)
    assert await runs.output(run) == data
    assert receipt["stdin_bytes"] == len(data)


async def test_twenty_megabytes_of_stdin(runs: Runs) -> None:
    data = bytes(range(251)) * (20 * MIB // 251)
    run = await runs.start(["sha256sum"], stdin=data)
    receipt = await runs.receipt(run)
    assert (await runs.output(run)).split()[0].decode() == hashlib.sha256(data).hexdigest()
    assert receipt["stdin_bytes"] == len(data)


async def test_a_program_may_ignore_its_stdin(runs: Runs) -> None:
    run = await runs.sh("exit 0", stdin=b"y" * MIB)
    receipt = await runs.receipt(run)
    assert receipt["outcome"] == {"kind": "exited", "code": 0, "signal": None}
    assert 0 <= receipt["stdin_bytes"] < MIB


async def test_a_program_may_close_its_stdin_and_go_on(runs: Runs) -> None:
    run = await runs.sh("head -c 3; exec 0<&-; sleep .1; echo .", stdin=b"abc" * MIB)
    receipt = await runs.receipt(run)
    assert await runs.output(run) == b"abc.\n"
    assert receipt["outcome"]["code"] == 0
    assert 3 <= receipt["stdin_bytes"] < 3 * MIB


async def test_stdin_of_a_child_that_outlives_the_leader(runs: Runs) -> None:
    run = await runs.sh("exec 3<&0; (sleep .2; wc -c) <&3 & exit 0", stdin=b"z" * MIB, completion="tree")
    receipt = await runs.receipt(run)
    assert (await runs.output(run)).split() == [b"%d" % MIB]
    assert receipt["stdin_bytes"] == MIB


async def test_writes_to_an_open_stdin_arrive_in_order_with_receipts(runs: Runs) -> None:
    run = await runs.start(["cat"], stdin="open")
    first = await runs.sup.write_stdin(run.id, b"one ")
    assert (first.result, first.detail["bytes"]) == ("written", 4)
    await runs.printed(run, b"one ")
    await runs.sup.write_stdin(run.id, b"two ")
    last = await runs.sup.write_stdin(run.id, b"three", eof=True)
    assert last.op == "close_stdin"
    receipt = await runs.receipt(run)
    assert await runs.output(run) == b"one two three"
    assert receipt["stdin_bytes"] == 13
    received = [one.detail for one in await runs.events(run, kinds={Kind.CONTROL_RECEIVED})]
    assert [one.get("bytes") for one in received] == [4, 4, 5, None]
    applied = [one.detail for one in await runs.events(run, kinds={Kind.CONTROL_APPLIED})]
    assert [one["result"] for one in applied] == ["written", "written", "written", "closed"]


async def test_a_large_write_to_an_open_stdin(runs: Runs) -> None:
    data = bytes(range(256)) * (20 * MIB // 256)
    run = await runs.start(["sha256sum"], stdin="open")
    await runs.sup.write_stdin(run.id, data, eof=True)
    await runs.wait(run)
    assert (await runs.output(run)).split()[0].decode() == hashlib.sha256(data).hexdigest()


async def test_an_end_of_file_alone(runs: Runs) -> None:
    run = await runs.sh("cat; echo over", stdin="open")
    receipt = await runs.sup.write_stdin(run.id, b"", eof=True)
    assert receipt.result == "closed"
    await runs.wait(run)
    assert await runs.output(run) == b"over\n"
    with pytest.raises(SupervisorError) as caught:
        await runs.sup.write_stdin(run.id, b"late")
    assert caught.value.code is ErrorCode.NOT_RUNNING


async def refused(runs: Runs, run: str, data: bytes = b"x") -> ErrorCode:
    with pytest.raises(SupervisorError) as caught:
        await runs.sup.write_stdin(run, data)
    return caught.value.code


async def test_writes_that_nobody_can_read_are_refused(runs: Runs, marker: Marker) -> None:
    given = await runs.sh(f"cat; sleep {marker}", stdin=b"a")
    null = await runs.sh(f"sleep {marker}")
    ended = await runs.sh(f"sleep {marker}", stdin="open")
    closed = await runs.sh(f"exec 0<&-; echo closed; sleep {marker}", stdin="open")
    await runs.sup.write_stdin(ended.id, b"", eof=True)
    await runs.printed(closed, b"closed")
    for run in (given, null, ended, closed):
        assert await refused(runs, run.id) is ErrorCode.STDIN_CLOSED
    for run in (given, null, ended, closed):
        await runs.sup.stop(run.id, grace=0)
    gone(marker)


async def test_a_full_pipe_makes_the_writer_wait_and_nobody_else(runs: Runs, marker: Marker) -> None:
    run = await runs.sh(f"sleep {marker}; :", stdin="open")
    appear(marker, 2)
    writing = asyncio.create_task(runs.sup.write_stdin(run.id, b"w" * MIB))

    async def received() -> bool:
        return bool(await runs.events(run, kinds={Kind.CONTROL_RECEIVED}))

    await eventually_async(received)
    assert not writing.done()
    stop = await runs.sup.stop(run.id)
    assert stop.confirmed
    gone(marker)
    with pytest.raises(SupervisorError) as caught:
        await writing
    assert caught.value.code in (ErrorCode.STDIN_CLOSED, ErrorCode.NOT_RUNNING)
    applied = [one.detail for one in await runs.events(run, kinds={Kind.CONTROL_APPLIED})]
    [stdin] = [one for one in applied if one["op"] == "stdin"]
    assert stdin["result"] == "closed"
    assert stdin["bytes"] == (await runs.receipt(run))["stdin_bytes"] < MIB


async def test_stdin_is_never_stored(runs: Runs) -> None:
    given = await runs.start(["wc", "-c"], stdin=b"never-on-disk-1")
    opened = await runs.start(["wc", "-c"], stdin="open")
    await runs.sup.write_stdin(opened.id, b"never-on-disk-2", eof=True)
    await runs.wait(given)
    await runs.wait(opened)
    assert b"never-on-disk" not in runs.log_bytes()
