"""One call, one result: every end of a program, on every face."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import AsyncIterator
from datetime import UTC
from pathlib import Path
from typing import Any, cast

import pytest

from durable_supervisor import (
    Command,
    ErrorCode,
    Limits,
    OnLimit,
    OutcomeKind,
    Phase,
    RunState,
    Supervisor,
    run,
    sync,
)
from durable_supervisor.model.enforcement import AXES
from tests.contract.hosts import refused
from tests.contract.runs import Marker, gone
from tests.run.conftest import Caller
from tests.support import eventually_async

MEBI = 1024 * 1024
PATIENCE = 60.0  # seconds; what must not be waited for takes far longer


async def test_what_it_printed_and_how_it_ended(caller: Caller) -> None:
    result = await caller.sh("printf 'out\\377'; printf err >&2; exit 3")
    assert (result.stdout, result.stderr) == (b"out\xff", b"err")
    assert (result.stdout_text(), result.stderr_text()) == ("out\ufffd", "err")
    assert (result.reason, result.exit_code, result.signal) == (OutcomeKind.EXITED, 3, None)
    assert (result.stdout_bytes, result.stderr_bytes, result.truncated) == (4, 3, False)
    assert not result.success
    assert not result.output_incomplete
    assert (result.survivors, result.stop, result.stdin_bytes) == ((), None, 0)
    assert result.executable == "sh"
    assert result.canonical_executable is not None
    assert result.canonical_executable.startswith("/")
    assert result.started_at is not None
    assert result.finished_at is not None
    assert result.started_at.tzinfo is UTC
    assert result.started_at <= result.finished_at
    assert result.duration > 0
    assert [axis for axis, report in result.enforcement.items() if report["applied"] == "full"] == ["tree"]
    assert len(result.enforcement) == len(AXES)
    seen = await caller.face.sup.inspect(str(result.run_id))
    assert seen.lifetime == "scope"
    assert seen.limits["timeout"] == 300
    assert seen.limits["on_limit"] == "terminate"


async def test_success_is_exit_code_0(caller: Caller) -> None:
    result = await caller.sh("kill -9 $$")
    assert (result.reason, result.exit_code, result.signal) == (OutcomeKind.SIGNALED, None, signal.SIGKILL)
    assert not result.success
    assert (await caller.run(["true"])).check().success


async def test_a_deadline_ends_all_that_hold_the_pipe(caller: Caller, marker: Marker) -> None:
    async with asyncio.timeout(PATIENCE):
        result = await caller.sh(f"setsid sleep {marker} & sleep {marker}", timeout=0.3)
    assert (result.reason, result.signal) == (OutcomeKind.TIMED_OUT, signal.SIGTERM)
    assert result.survivors == ()
    gone(marker)


async def test_a_child_that_holds_the_pipe_delays_nothing(caller: Caller, marker: Marker) -> None:
    async with asyncio.timeout(PATIENCE):
        result = await caller.sh(f"sleep {marker} & exit 0", timeout=600)
    assert (result.reason, result.exit_code) == (OutcomeKind.EXITED, 0)
    gone(marker)


async def test_silence_for_too_long(caller: Caller) -> None:
    result = await caller.run(["sleep", "60"], idle_timeout=0.3)
    assert (result.reason, result.stdout) == (OutcomeKind.IDLE_TIMED_OUT, b"")


async def test_silence_after_words(sup: Supervisor) -> None:
    """They come within the bound that is counted anew behind them, also where the processors are taken."""
    command = Command(argv=["sh", "-c", "echo once; sleep 60"], idle_timeout=5)
    result = await run(command, supervisor=sup)
    assert (result.reason, result.stdout) == (OutcomeKind.IDLE_TIMED_OUT, b"once\n")


async def test_more_output_than_allowed(caller: Caller) -> None:
    result = await caller.sh("yes", max_stdout_bytes=100_000)
    assert result.reason is OutcomeKind.STDOUT_LIMIT_EXCEEDED
    assert result.stdout == (b"y\n" * 50_000)[: len(result.stdout)]
    assert result.stdout_dropped == result.stdout_bytes - len(result.stdout)
    assert len(result.stdout) <= 100_000
    result = await caller.sh("yes >&2", max_stderr_bytes=4096)
    assert result.reason is OutcomeKind.STDERR_LIMIT_EXCEEDED
    assert result.stderr.startswith(b"y\ny\n")


async def test_limits_of_ones_own_are_taken_as_they_are(caller: Caller) -> None:
    limits = Limits(max_stdout_bytes=65536, on_limit=OnLimit.TRUNCATE)
    result = await caller.sh("yes | head -c 1000000", limits=limits)
    assert (result.reason, result.stdout_bytes) == (OutcomeKind.EXITED, 1_000_000)
    assert result.truncated
    assert len(result.stdout) + result.stdout_dropped == 1_000_000


async def test_stdin_of_any_size(caller: Caller) -> None:
    small, large = bytes(range(256)) * 10, bytes(range(256)) * (MEBI // 256)
    assert (await caller.run(["cat"], input=b"")).stdout == b""
    assert (await caller.run(["cat"], input=small)).stdout == small
    result = await caller.run(["cat"], input=memoryview(large))  # far more than both pipes hold
    assert result.stdout == large
    assert result.stdin_bytes == len(large)


async def test_a_program_that_ignores_its_stdin(caller: Caller) -> None:
    for size in (100_000, MEBI):
        result = await caller.run(["true"], input=b"x" * size)
        assert (result.reason, result.exit_code) == (OutcomeKind.EXITED, 0)
        assert 0 <= result.stdin_bytes <= 65536  # what the pipe took


async def test_a_large_stdin_of_one_that_waits_for_its_slot(state_dir: Path, marker: Marker) -> None:
    async with Supervisor.open(state_dir, max_concurrent_runs=1) as sup:
        first = await sup.start(Command(argv=["sleep", str(marker)]))
        call = run(Command(argv=["cat"]), input=b"x" * MEBI, queue=True, supervisor=sup)
        task = asyncio.create_task(call)

        async def queued() -> bool:
            return any(one.state is RunState.QUEUED for one in (await sup.list()).runs)

        await eventually_async(queued)
        await sup.stop(first.id)
        assert (await task).stdin_bytes == MEBI


async def test_what_gives_out_something_else_than_bytes(tasks: Caller) -> None:
    async def words() -> AsyncIterator[Any]:
        yield "text"

    async with refused(ErrorCode.INVALID_REQUEST) as caught:
        await tasks.run(["cat"], input=words())
    assert caught().details["field"] == "input"


async def test_a_program_that_never_reads_has_its_deadline(caller: Caller) -> None:
    result = await caller.run(["sleep", "60"], input=b"x" * MEBI, timeout=0.5)
    assert result.reason is OutcomeKind.TIMED_OUT


async def test_nothing_of_the_environment_comes_over(caller: Caller) -> None:
    script = "import os; print(sorted(os.environ))"
    argv = [sys.executable, "-I", "-S", "-c", script]
    result = await caller.run(argv, env={"GIVEN": "1"}, inherit_env=["PYTEST_CURRENT_TEST"])
    assert "'GIVEN'" in result.stdout_text()
    assert "PYTEST_VERSION" not in result.stdout_text()


async def test_the_same_request_is_the_same_run(caller: Caller) -> None:
    request_id = caller.face.id("once")
    first = await caller.sh("echo $$", request_id=request_id)
    again = await caller.sh("echo $$", request_id=request_id)
    assert again == first


async def test_a_program_that_is_not_there(caller: Caller) -> None:
    async with refused(ErrorCode.INVALID_REQUEST) as caught:
        await caller.run(["no-such-program"])
    error = caught()
    assert (error.details["field"], error.executable, error.phase) == (
        "argv",
        "no-such-program",
        Phase.VALIDATE,
    )
    # With an id it may be a run of before, which had it: that is looked for first.
    async with refused(ErrorCode.INVALID_REQUEST) as caught:
        await caller.run(["no-such-program"], request_id=caller.face.id("missing"))
    assert caught().details["field"] == "argv"
    async with refused(ErrorCode.NOT_STARTED) as caught:
        await caller.run(["/no/such/program"])
    error = caught()
    assert (error.executable, error.details["error"], error.phase) == (
        "/no/such/program",
        "ENOENT",
        Phase.DISPATCH,
    )
    assert "was not started: ENOENT (No such file or directory): /no/such/program" in error.message
    async with refused(ErrorCode.NOT_STARTED) as caught:
        await caller.run(["true"], cwd="/no/such/place")
    assert "ENOENT (No such file or directory): directory /no/such/place" in caught().message


async def test_contradictions_are_refused(caller: Caller) -> None:
    for options, field in (
        ({"timeout": 1, "limits": Limits(timeout=2)}, "timeout"),
        ({"stdin": b"x", "input": b"y"}, "input"),
        ({"stdin": "open"}, "stdin"),
        ({"input": "text"}, "input"),
        ({"input": b"xxx", "max_stdin_bytes": 2}, "input"),
        ({"token": "a word"}, "token"),
        ({"lifetime": "for ever"}, "lifetime"),
        ({"limits": 7}, "limits"),
        ({"policy": "strict"}, "policy"),
    ):
        async with refused(ErrorCode.INVALID_REQUEST) as caught:
            await caller.run(["true"], **options)
        assert caught().details["field"] == field


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("timeout", "belongs in Command(timeout=...)"),
        ("max_memory_bytes", "belongs in Limits(max_memory_bytes=...)"),
        ("check", "unexpected keyword argument 'check' for run, stream and spawn"),
    ],
)
async def test_a_word_that_the_calls_do_not_have(word: str, told: str) -> None:
    command, options = Command(argv=["true"]), cast(Any, {word: 1})
    with pytest.raises(TypeError, match=re.escape(told)):
        await run(command, **options)
    with pytest.raises(TypeError, match=re.escape(told)):
        sync.run(command, **options)
