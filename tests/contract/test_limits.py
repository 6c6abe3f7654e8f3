"""Bounds in bytes and in time hold, and what they cost is counted."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest

from durable_supervisor.model.events import Event, Kind
from tests.contract.runs import Marker, Runs, check_gapless, gone
from tests.support import eventually_async

MIB = 1024 * 1024


def disk_bytes(runs: Runs) -> int:
    total = 0
    for folder, _, names in os.walk(runs.state_dir / "runs"):
        for name in names:
            with suppress(FileNotFoundError):  # segments come and go
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
    return total


def check_bounded(events: list[Event], output: dict[str, Any], stream: str, cap: int) -> bytes:
    """What every truncated stream must satisfy; returns what is kept of it."""
    check_gapless(events)
    kept = [one for one in events if one.kind == Kind.OUTPUT and one.stream == stream]
    data = b"".join(one.data for one in kept)
    assert len(data) <= cap
    assert output["dropped"] + len(data) == output["bytes"]
    ranges = [one for one in events if one.kind == Kind.OUTPUT_DROPPED]
    assert sum(int(str(one.detail["bytes"])) for one in ranges) == output["dropped"]
    for before, after in pairwise(kept):
        assert after.offset is not None
        assert before.offset is not None
        assert after.offset >= before.offset + len(before.data)
    return data


async def test_a_flood_keeps_its_head_and_its_tail_in_bounded_space(runs: Runs) -> None:
    run = await runs.sh("echo head; exec yes 'a line among many'", max_stdout_bytes=MIB)
    deadline = time.monotonic() + 3
    worst = 0
    while time.monotonic() < deadline:
        worst = max(worst, disk_bytes(runs))
        await asyncio.sleep(0.1)
    rss = resident_bytes((await runs.worker(run.id)).pid)
    await runs.sup.stop(run.id)
    assert worst < 3 * MIB, worst
    assert rss < 64 * MIB, rss
    output = (await runs.receipt(run))["output"]["stdout"]
    assert output["bytes"] > 4 * MIB
    events = await runs.events(run)
    data = check_bounded(events, output, "stdout", MIB)
    assert data.startswith(b"head\na line among many\n")
    assert len(data) > MIB // 2
    last = [one for one in events if one.kind == Kind.OUTPUT][-1]
    assert last.offset is not None
    assert last.offset + len(last.data) == output["bytes"]
    assert await runs.events(run, size=3) == events


def resident_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_one_stream_beyond_its_cap_leaves_the_other_whole(runs: Runs) -> None:
    script = 'i=0; while [ $i -lt 400 ]; do i=$((i+1)); echo "err $i" >&2; echo "{0} $i"; done'
    run = await runs.sh(script.format("o" * 100), max_stdout_bytes=4096)
    receipt = await runs.receipt(run)
    events = await runs.events(run)
    data = check_bounded(events, receipt["output"]["stdout"], "stdout", 4096)
    assert data.endswith(b"o 400\n")
    assert await runs.output(run, "stderr") == b"".join(b"err %d\n" % number for number in range(1, 401))
    assert receipt["output"]["stderr"]["dropped"] == 0


@pytest.mark.parametrize("cap", [1, 2, 7, 100, 1000])
async def test_tiny_caps(runs: Runs, cap: int) -> None:
    run = await runs.sh("for i in $(seq 1 300); do echo $i; done", max_stdout_bytes=cap)
    receipt = await runs.receipt(run)
    events = await runs.events(run)
    data = check_bounded(events, receipt["output"]["stdout"], "stdout", cap)
    whole = b"".join(b"%d\n" % number for number in range(1, 301))
    assert receipt["output"]["stdout"]["bytes"] == len(whole)
    assert data[:1] == whole[:1]
    assert cap == 1 or data[-1:] == whole[-1:]
    assert await runs.events(run, size=2) == events


@pytest.mark.parametrize("size", [999, 1000])
async def test_a_cap_just_reached_drops_nothing(runs: Runs, size: int) -> None:
    for on_limit in ("truncate", "terminate"):
        run = await runs.sh(f"head -c {size} /dev/zero", max_stdout_bytes=1000, on_limit=on_limit)
        receipt = await runs.receipt(run)
        assert await runs.output(run) == bytes(size)
        assert receipt["output"]["stdout"]["dropped"] == 0
        assert receipt["outcome"]["kind"] == "exited"


@pytest.mark.parametrize(("stream", "fd"), [("stdout", 1), ("stderr", 2)])
async def test_terminate_keeps_the_exact_prefix(runs: Runs, marker: Marker, stream: str, fd: int) -> None:
    bounds = {f"max_{stream}_bytes": 10_000}
    run = await runs.sh(f"seq 1 1000000 >&{fd}; sleep {marker}", on_limit="terminate", **bounds)
    receipt = await runs.receipt(run)
    gone(marker)
    assert receipt["outcome"]["kind"] == f"{stream}_limit_exceeded"
    assert receipt["stop"]["reason"] == f"{stream}_limit"
    whole = b"".join(b"%d\n" % number for number in range(1, 10_000))
    assert await runs.output(run, stream) == whole[:10_000]
    output = receipt["output"][stream]
    assert output["bytes"] > 10_000
    assert output["dropped"] == output["bytes"] - 10_000
    check_gapless(await runs.events(run))


async def test_a_program_that_exceeds_its_bound_and_exits_at_once_has_exceeded_it(runs: Runs) -> None:
    """Whether the worker sees the bytes or the exit first must not decide the outcome."""
    for _ in range(5):
        run = await runs.sh("head -c 2000 /dev/zero; exit 3", max_stdout_bytes=1000, on_limit="terminate")
        receipt = await runs.receipt(run)
        assert receipt["outcome"]["kind"] == "stdout_limit_exceeded"
        assert receipt["exit"] in ({"code": 3, "signal": None}, {"code": None, "signal": 15})
        assert await runs.output(run) == bytes(1000)


async def test_a_timeout_stops_the_tree_without_anybody_watching(runs: Runs, marker: Marker) -> None:
    run = await runs.sh(f"sleep {marker} & sleep {marker}", timeout=0.3)
    receipt = await runs.receipt(run)
    gone(marker)
    assert receipt["outcome"] == {"kind": "timed_out", "code": None, "signal": 15}
    assert receipt["duration"] >= 0.3
    assert receipt["stop"]["reason"] == "timeout"


async def test_a_timeout_escalates_when_nobody_obeys(runs: Runs, marker: Marker) -> None:
    run = await runs.sh(f"trap '' TERM; while :; do sleep .1; done # {marker}", timeout=2, grace=0.2)
    receipt = await runs.receipt(run)
    gone(marker)
    assert receipt["outcome"] == {"kind": "timed_out", "code": None, "signal": 9}
    assert receipt["stop"]["escalated"] is True


async def test_a_program_that_ends_in_time_is_not_timed_out(runs: Runs) -> None:
    run = await runs.sh("exit 6", timeout=5, idle_timeout=5)
    receipt = await runs.receipt(run)
    assert receipt["outcome"] == {"kind": "exited", "code": 6, "signal": None}
    assert receipt["stop"] is None


async def test_a_timeout_after_the_leaders_exit_is_not_the_outcome(runs: Runs, marker: Marker) -> None:
    run = await runs.sh(f"(trap '' TERM; sleep {marker}; sleep {marker}) & exit 0", timeout=2, grace=3)
    receipt = await runs.receipt(run)
    gone(marker)
    assert receipt["outcome"] == {"kind": "exited", "code": 0, "signal": None}


async def test_silence_is_an_idle_timeout_and_output_resets_it(runs: Runs, marker: Marker) -> None:
    script = f"for i in $(seq 1 20); do sleep .25; echo $i; done; sleep .25; echo 21 >&2; sleep {marker}"
    run = await runs.sh(script, idle_timeout=4)
    receipt = await runs.receipt(run)
    gone(marker)
    assert receipt["outcome"]["kind"] == "idle_timed_out"
    assert receipt["stop"]["reason"] == "idle_timeout"
    assert await runs.output(run) == b"".join(b"%d\n" % number for number in range(1, 21))
    assert receipt["duration"] >= 21 * 0.25 + 4


async def test_a_dropped_byte_is_no_silence(runs: Runs) -> None:
    """Output beyond a cap still shows that the program works."""
    script = "for i in $(seq 1 16); do echo $i; sleep .25; done"
    run = await runs.sh(script, idle_timeout=3, max_stdout_bytes=2)
    assert (await runs.receipt(run))["outcome"]["kind"] == "exited"


async def test_a_timeout_and_a_stop_at_once_leave_one_ladder(runs: Runs, marker: Marker) -> None:
    run = await runs.sh(f"trap '' TERM; while :; do sleep .05; done # {marker}", timeout=2, grace=60)
    await runs.event(run, Kind.RUN_STOPPING)
    receipt = await runs.sup.stop(run.id, grace=0)
    gone(marker)
    assert receipt.result == "already_stopping"
    assert receipt.outcome is not None
    assert receipt.outcome.kind.value == "timed_out"
    assert (await runs.kinds(run)).count(Kind.RUN_STOPPING) == 1


async def test_bounds_hold_with_no_supervisor_alive(runs: Runs, marker: Marker) -> None:
    await runs.sh(f"sleep {marker}", timeout=0.4)
    await runs.sup.close()
    await eventually_async(lambda: not marker.alive())
