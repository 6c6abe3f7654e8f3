"""Output as it comes, and no faster than it is taken."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import time
from typing import Any

import pytest

from durable_supervisor import (
    CancellationToken,
    Command,
    ErrorCode,
    Limits,
    OnLimit,
    OutcomeKind,
    Stream,
    Supervisor,
    stream,
)
from durable_supervisor.api.lines import LINE_BYTES, Line, Lines
from tests.contract.hosts import refused
from tests.contract.runs import Marker, check_gapless, gone
from tests.run.conftest import Caller
from tests.support import PATIENCE, eventually_async

FLOOD = "import os\nwhile True: os.write(1, b'x' * 65536)"


def streamed(caller: Caller, argv: list[str], *, capture: bool = False, **options: Any) -> Stream:
    fields = {name: options.pop(name) for name in list(options) if name in Command.FIELDS}
    return stream(Command(argv=argv, **fields), capture=capture, supervisor=caller.supervisor, **options)


async def test_the_events_of_a_run(tasks: Caller) -> None:
    argv = ["sh", "-c", "echo one; echo two >&2; cat; exit 4"]
    async with streamed(tasks, argv, capture=True, input=b"three\n") as events:
        seen = [event async for event in events]
        result = await events.wait()
    check_gapless(seen)
    output = {name: b"".join(e.data for e in seen if e.stream == name) for name in ("stdout", "stderr")}
    assert output == {"stdout": b"one\nthree\n", "stderr": b"two\n"}
    assert seen[-1].kind == "run.finished"
    assert seen[-1].result == result
    assert (result.stdout, result.stderr, result.exit_code) == (b"one\nthree\n", b"two\n", 4)
    assert seen == (await tasks.face.sup.events(str(result.run_id), limit=1000)).events or (
        tasks.kind == "async"  # whose times have microseconds
    )


async def test_a_breach_is_the_last_event(tasks: Caller) -> None:
    async with streamed(tasks, ["yes"], max_stdout_bytes=100_000) as events:
        last = [event async for event in events][-1]
    assert last.result is not None
    assert last.result.reason is OutcomeKind.STDOUT_LIMIT_EXCEEDED
    assert last.result.stdout == b""  # it was not to be captured


async def test_leaving_early_leaves_nothing(tasks: Caller, marker: Marker) -> None:
    argv = ["sh", "-c", f"setsid sleep {marker} & echo up; sleep {marker}"]
    async with streamed(tasks, argv) as events:
        async for event in events:
            if event.data:
                break
        assert marker.alive()  # the end of an iteration is the end of nothing else
    gone(marker)
    assert (await events.wait()).reason is OutcomeKind.CANCELLED


async def test_an_error_in_the_body_is_the_callers(tasks: Caller, marker: Marker) -> None:
    async def failing() -> None:
        async with streamed(tasks, ["sleep", str(marker)]):
            await eventually_async(lambda: marker.alive())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await failing()
    gone(marker)


async def test_a_reader_that_is_slow_holds_the_program_back(tasks: Caller) -> None:
    window = 128 * 1024
    argv = [sys.executable, "-I", "-S", "-c", FLOOD]
    async with streamed(tasks, argv, window=window) as events:
        taken = 0
        iteration = aiter(events)
        async for event in iteration:
            taken += len(event.data)
            if taken > 3 * window:
                break
        log = await standstill(tasks, str(events.run_id))
        assert log <= taken + window
        async for event in iteration:  # it goes on where it was
            taken += len(event.data)
            if taken > 6 * window:
                break
    result = await events.wait()
    assert (result.reason, result.stdout_dropped) == (OutcomeKind.CANCELLED, 0)


async def standstill(caller: Caller, run_id: str) -> int:
    """Bytes of stdout in the log, once they grow no more."""
    before = -1
    while True:
        page = await caller.face.sup.events(run_id, limit=10_000)
        while not page.end and (more := await caller.face.sup.events(run_id, after=page.next_after)).events:
            page = more
        size = max((event.offset or 0) + len(event.data) for event in page.events)
        if size == before:
            return size
        before = size
        await asyncio.sleep(0.2)


async def test_a_deadline_holds_while_it_is_held_back(tasks: Caller) -> None:
    argv = [sys.executable, "-I", "-S", "-c", FLOOD]
    async with streamed(tasks, argv, window=4096, timeout=0.5) as events:
        run_id = str(events.run_id)
        seen = await tasks.face.sup.wait(run_id, timeout=PATIENCE)  # nobody takes anything
        assert seen.outcome is not None
        assert seen.outcome.kind is OutcomeKind.TIMED_OUT
        assert (await events.wait()).reason is OutcomeKind.TIMED_OUT


async def test_a_token_holds_while_it_is_held_back(sup: Supervisor) -> None:
    token = CancellationToken()
    command = Command(argv=[sys.executable, "-I", "-S", "-c", FLOOD])
    async with stream(command, window=4096, token=token, supervisor=sup) as events:
        await standstill_of(sup, str(events.run_id))
        token.cancel()
        async with asyncio.timeout(PATIENCE):
            last = [event async for event in events][-1]
    assert last.result is not None
    assert last.result.reason is OutcomeKind.CANCELLED


async def standstill_of(sup: Supervisor, run_id: str) -> None:
    async def printed() -> bool:
        return any(event.data for event in (await sup.events(run_id)).events)

    await eventually_async(printed)


async def test_called_off_before_its_start(sup: Supervisor) -> None:
    token = CancellationToken()
    token.cancel()
    async with stream(Command(argv=["true"]), token=token, supervisor=sup) as events:
        assert [event async for event in events] == []
        assert (await events.wait()).outcome is None
        assert events.run_id is None
    assert (await sup.list()).runs == []


async def test_without_a_window_or_a_scope_nothing_is_held_back(sup: Supervisor) -> None:
    command = Command(argv=["sh", "-c", "yes | head -c 3000000"])
    for options in ({"window": None}, {"lifetime": "detached"}):
        async with stream(command, supervisor=sup, **options) as events:
            seen = await sup.wait(str(events.run_id), timeout=PATIENCE)
            assert seen.receipt is not None
            assert (await events.wait()).stdout_bytes == 3_000_000


async def test_dropped_output_counts_as_taken(sup: Supervisor) -> None:
    """With a cap the middle goes; what went is nothing that the program would be held back for."""
    command = Command(argv=["sh", "-c", "yes | head -c 5000000"])
    limits = Limits(max_stdout_bytes=100_000, on_limit=OnLimit.TRUNCATE, timeout=PATIENCE)
    async with stream(command, supervisor=sup, limits=limits, window=65536) as events:
        result = await events.wait()
    assert (result.reason, result.stdout_bytes) == (OutcomeKind.EXITED, 5_000_000)


async def test_a_program_that_cannot_be_started(sup: Supervisor) -> None:
    async with refused(ErrorCode.NOT_STARTED), stream(Command(argv=["/no/such"]), supervisor=sup):
        pytest.fail("entered")
    async with refused(ErrorCode.INVALID_REQUEST):
        stream(Command(argv=["no-such-program"]), supervisor=sup)
    unentered = stream(Command(argv=["true"]), supervisor=sup)
    async with refused(ErrorCode.INVALID_REQUEST):
        await unentered.wait()


async def test_lines(tasks: Caller) -> None:
    argv = ["sh", "-c", "printf 'one\\n\\ntwo\\r\\nthree'; echo err >&2"]
    async with streamed(tasks, argv) as events:
        found = [line async for line in events.lines()]
    out = [line for line in found if line.stream == "stdout"]
    assert [line.text for line in out] == ["one", "", "two", "three"]
    assert [line.ended for line in out] == [True, True, True, False]
    assert [line.data for line in found if line.stream == "stderr"] == [b"err"]


async def test_a_line_of_50_megabytes(sup: Supervisor) -> None:
    """It neither fits into memory, as far as anybody knows, nor needs to."""
    script = "import os\nfor _ in range(800): os.write(1, b'x' * 65536)\nos.write(1, b'\\nlast\\n')"
    before, size, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0, time.monotonic()
    async with stream(Command(argv=[sys.executable, "-I", "-S", "-c", script]), supervisor=sup) as events:
        async for line in events.lines():
            assert len(line.data) <= LINE_BYTES
            size += len(line.data)
    assert (size, line) == (800 * 65536 + 4, Line("stdout", b"last", True))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 40 * 1024, f"{grown} KiB more, in {time.monotonic() - began:.1f} s"


def test_lines_are_cut_alike_however_they_come() -> None:
    data = ("kurz\n" + "\u20ac" * 70_000 + "\n" + "\U0001f600" * 20_000).encode() + os.urandom(1000)
    whole = Lines()
    expected = whole.feed("stdout", data) + whole.finish()
    for step in (1_000, 65_536, 100_000):
        cut, found = Lines(), []
        for begin in range(0, len(data), step):
            found += cut.feed("stdout", data[begin : begin + step])
        found += cut.finish()
        assert joined(found) == joined(expected)
        assert all(len(one.data) <= LINE_BYTES for one in found)
        assert all("\ufffd" not in one.text for one in found[:4])


def joined(lines: list[Line]) -> bytes:
    return b"".join(one.data + b"\n" * one.ended for one in lines)
