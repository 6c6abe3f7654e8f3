"""A program with a window is held back until its output is acknowledged, and by nothing else."""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from durable_supervisor import Command, ErrorCode, Limits, RunState, Terminal
from durable_supervisor.model.events import Kind
from durable_supervisor.model.run import Run
from tests.contract.hosts import host, refused
from tests.contract.runs import Marker, Runs, appear, gone, state_of, with_argument
from tests.contract.test_state_dir import ROOT_ONLY, in_a_mount_namespace
from tests.support import PATIENCE, eventually_async

WINDOW = 64 * 1024
PIPE = 64 * 1024  # what one holds (pipe(7)), on top of the window
STILL = 0.3  # seconds after which a counter that stays as it is counts as standing still
# Writes for ever, or ``total`` bytes, and counts in a file what it got rid of.
WRITER = """
import os, signal, sys
counter = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT, 0o600)
stream, total = int(sys.argv[2]), int(sys.argv[3])
written = 0
while written < total:
    written += os.write(stream, b"x" * 4096)
    os.pwrite(counter, b"%d" % written, 0)
signal.pause()
"""


def writer(counter: Path, stream: int = 1, total: int = 1 << 60) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", WRITER, str(counter), str(stream), str(total)]


async def windowed(runs: Runs, argv: list[str], **options: Any) -> Run:
    limits = Limits(**{"grace": 3, **options.pop("limits", {})})
    completion = options.pop("completion", "leader")
    command = Command(argv=argv, **options)
    return await runs.sup.start(
        command, limits=limits, completion=completion, lifetime="scope", window=WINDOW
    )


async def kept(runs: Runs, run: Run, size: int) -> None:
    """Wait until so much of its stdout is in the log."""

    async def there() -> bool:
        return len(await runs.output(run)) == size

    await eventually_async(there)


def count(counter: Path) -> int:
    try:
        return int(counter.read_text() or 0)
    except FileNotFoundError:
        return 0


async def blocked(runs: Runs, run: Run, counter: Path, above: int, still: float = STILL) -> int:
    """Wait until it has written more than ``above``, and then nothing for a while; how much.

    Nor has it wished to, or its worker to read: whoever merely gets no processor does not sleep.
    """
    worker = (await runs.worker(run.id)).pid
    seen, since, looks = -1, 0.0, 0

    def stands() -> bool:
        nonlocal seen, since, looks
        now, writers = count(counter), with_argument(str(counter))
        asleep = writers and all(state_of(pid) == "S" for pid in (worker, *writers))
        if now != seen or not asleep:
            seen, since, looks = now, time.monotonic(), 0
        looks += 1
        return now > above and looks > 5 and time.monotonic() - since > still

    await eventually_async(stands, timeout=PATIENCE, message="it went on writing")
    return seen


@pytest.mark.parametrize("pty", [False, True], ids=["pipe", "terminal"])
async def test_it_blocks_and_goes_on(runs: Runs, tmp_path: Path, pty: bool) -> None:
    counter = tmp_path / "counter"
    run = await windowed(runs, writer(counter), pty=Terminal() if pty else None)
    first = await blocked(runs, run, counter, 0)
    assert WINDOW <= first <= WINDOW + PIPE + 4096
    assert len(await runs.output(run)) == WINDOW
    for _ in range(3):
        consumed = len(await runs.output(run))
        await runs.sup.acknowledge(run.id, stdout=consumed)
        await blocked(runs, run, counter, first)
        first = count(counter)
        assert len(await runs.output(run)) == consumed + WINDOW
    await runs.sup.stop(run.id)
    assert (await runs.receipt(run))["stop"]["reason"] == "stop"


async def test_each_stream_for_itself(runs: Runs, tmp_path: Path) -> None:
    """What is said of the one does not count for the other."""
    out, err = tmp_path / "out", tmp_path / "err"
    run = await windowed(runs, ["sh", "-c", f"{shlex.join(writer(out))} & exec {shlex.join(writer(err, 2))}"])
    first = (await blocked(runs, run, out, 0), await blocked(runs, run, err, 0))
    await runs.sup.acknowledge(run.id, stderr=WINDOW)
    assert await blocked(runs, run, err, first[1]) == first[1] + WINDOW
    assert count(out) == first[0]
    await runs.sup.acknowledge(run.id, stdout=WINDOW)
    assert await blocked(runs, run, out, first[0]) == first[0] + WINDOW
    await runs.sup.stop(run.id)


async def test_words_that_change_nothing(runs: Runs, tmp_path: Path) -> None:
    """Less than before, more than there is, the same again, and for a run that has no window."""
    counter = tmp_path / "counter"
    run = await windowed(runs, writer(counter))
    first = await blocked(runs, run, counter, 0)
    await runs.sup.acknowledge(run.id, stdout=1 << 60, stderr=5)  # all there is by now, not what will be
    second = await blocked(runs, run, counter, first)
    assert second == first + WINDOW
    for word in (0, WINDOW, WINDOW - 1):
        await runs.sup.acknowledge(run.id, stdout=word)
    assert await blocked(runs, run, counter, 0) == second
    await runs.sup.stop(run.id)
    await runs.sup.acknowledge(run.id, stdout=1)
    other = await runs.sh("true")
    await runs.sup.acknowledge(other.id, stdout=1)
    for bad in (-1, True, "1", None):
        async with refused(ErrorCode.INVALID_REQUEST) as caught:
            await runs.sup.acknowledge(run.id, stdout=bad)  # type: ignore[arg-type]
        assert caught().details["field"] == "stdout"
    async with refused(ErrorCode.UNKNOWN_RUN):
        await runs.sup.acknowledge("0" * 16)


async def test_it_needs_a_host_to_be_waited_for(runs: Runs) -> None:
    """A detached program would be held back for ever by an application that died."""
    for window, lifetime in ((WINDOW, "detached"), (4095, "scope"), (True, "scope"), (1.5, "scope")):
        async with refused(ErrorCode.INVALID_REQUEST) as caught:
            await runs.sup.start(Command(argv=["true"]), lifetime=lifetime, window=window)  # type: ignore[arg-type]
        assert caught().details["field"] == "window"


async def test_what_is_held_back_is_read_in_the_end(runs: Runs, tmp_path: Path) -> None:
    """The pipe's content too, once the leader has ended."""
    size = WINDOW + 40_000
    run = await windowed(runs, ["head", "-c", str(size), "/dev/zero"])
    receipt = await runs.receipt(run)
    assert receipt["output"]["stdout"] == {"bytes": size, "dropped": 0, "complete": True}
    assert len(await runs.output(run)) == size


@pytest.mark.parametrize("completion", ["leader", "tree"])
async def test_what_a_leader_leaves_behind(runs: Runs, tmp_path: Path, completion: str) -> None:
    """With the leader's end the run is over, or goes on: then so does the window."""
    counter = tmp_path / "counter"
    enough = f'while [ "0$(cat {counter} 2>/dev/null)" -lt {WINDOW} ]; do sleep 0.02; done'
    argv = ["sh", "-c", f"trap '' TERM; {shlex.join(writer(counter))} & {enough}; exit 3"]
    run = await windowed(runs, argv, completion=completion, limits={"grace": 0.1})
    if completion == "tree":
        assert await blocked(runs, run, counter, 0) <= WINDOW + PIPE + 4096
        assert len(await runs.output(run)) == WINDOW
        await runs.sup.stop(run.id)
    receipt = await runs.receipt(run)
    assert receipt["exit"]["code"] == 3
    assert receipt["survivors"] == []
    stored = len(await runs.output(run))
    assert stored + receipt["output"]["stdout"]["dropped"] == receipt["output"]["stdout"]["bytes"] >= WINDOW


async def test_a_stream_that_ends_while_it_is_held_back(runs: Runs, marker: Marker) -> None:
    """The leader has ended, and what it has left goes on without any output."""
    left = f"head -c {WINDOW + 50} /dev/zero; exec sleep {marker} >/dev/null 2>&1"
    run = await windowed(runs, ["sh", "-c", f"({left}) & exit 3"], completion="tree")
    await kept(runs, run, WINDOW)
    appear(marker, 1)
    await runs.sup.acknowledge(run.id, stdout=100)
    await kept(runs, run, WINDOW + 50)
    assert (await runs.sup.stop(run.id)).confirmed
    receipt = await runs.receipt(run)
    assert not receipt["incomplete"]
    assert receipt["output"]["stdout"] == {"bytes": WINDOW + 50, "dropped": 0, "complete": True}
    gone(marker)


@pytest.mark.parametrize(
    ("limits", "kind"),
    [
        ({"timeout": 1.0}, "timed_out"),
        ({"max_stdout_bytes": 1, "on_limit": "terminate"}, "stdout_limit_exceeded"),
    ],
)
async def test_bounds_hold_meanwhile(runs: Runs, tmp_path: Path, limits: dict[str, Any], kind: str) -> None:
    run = await windowed(runs, writer(tmp_path / "counter"), limits=limits)
    seen = await runs.wait(run)
    assert seen.outcome is not None
    assert seen.outcome.kind == kind


async def test_a_stop_lets_out_what_it_has_to_say(runs: Runs, tmp_path: Path) -> None:
    """A program that is told to end may be in the middle of a write, and have a last word."""
    script = f"trap 'echo the last word; exit 7' TERM; head -c {WINDOW * 4} /dev/zero; echo; sleep 600 & wait"
    run = await windowed(runs, ["sh", "-c", script])
    await kept(runs, run, WINDOW)
    receipt = await runs.sup.stop(run.id, grace=20)
    assert receipt.outcome is not None
    assert (receipt.outcome.kind, receipt.outcome.code) == ("cancelled", 7)
    assert (await runs.output(run)).endswith(b"the last word\n")


async def test_the_idle_timer_waits_with_it(runs: Runs, tmp_path: Path) -> None:
    """Who is held back is not silent; who has been let go, and says nothing, is."""
    counter, total, idle = tmp_path / "counter", WINDOW * 4, 2.5  # going on takes some of it
    run = await windowed(runs, writer(counter, total=total), limits={"idle_timeout": idle})
    await blocked(runs, run, counter, 0, still=idle * 1.5)
    assert (await runs.sup.inspect(run.id)).state is RunState.RUNNING
    for consumed in range(WINDOW, total + 1, WINDOW):
        await runs.sup.acknowledge(run.id, stdout=consumed)
        await kept(runs, run, min(consumed + WINDOW, total))
    assert (await runs.receipt(run))["stop"]["reason"] == "idle_timeout"


SECRET = "a secret that is longer than what stands for it"
PRINTS = """
import sys
for number in range({count}):
    sys.stdout.write("x" * 900 + sys.argv[1] + "\\n")
"""


async def test_what_counts_is_what_is_recorded(runs: Runs) -> None:
    """After redaction, and though most of it is dropped from the log again: a reader gets to the end."""
    program = [sys.executable, "-I", "-S", "-c", PRINTS.format(count=5000), SECRET]
    run = await windowed(runs, program, secrets=[SECRET], limits={"max_stdout_bytes": 4 * WINDOW})
    recorded, largest = 0, 0
    async for event in runs.sup.follow(run.id):
        if event.kind == Kind.OUTPUT:
            assert event.offset == recorded
            recorded += len(event.data)
        elif event.kind == Kind.OUTPUT_DROPPED:
            recorded += int(str(event.detail["bytes"]))
        largest = max(largest, resident((await runs.worker(run.id)).pid))
        await runs.sup.acknowledge(run.id, stdout=recorded)
    receipt = await runs.receipt(run)
    assert receipt["exit"]["code"] == 0
    assert recorded == 5000 * (901 + len("[redacted]"))
    assert receipt["output"]["stdout"]["bytes"] == 5000 * (901 + len(SECRET))
    assert 0 < largest < 48 * 1024


def resident(pid: int) -> int:
    """KiB of memory that the process has; 0 once it is gone."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            return next((int(line.split()[1]) for line in file if line.startswith("VmRSS")), 0)
    except OSError:
        return 0


@ROOT_ONLY
async def test_a_full_disk_holds_nobody_back(tmp_path: Path) -> None:
    """What it drops nobody gets to see; once that is told, it counts like everything else."""
    state, counter = tmp_path / "small", tmp_path / "counter"
    state.mkdir(mode=0o700)
    counter.write_text("0")
    code = f"""
    def written():
        return int(open({str(counter)!r}).read() or 0)
    async def seen(kind):
        return (await sup.events(run.id, kinds=[kind], limit=1000)).events
    async with Supervisor.open(STATE) as sup:
        run = await sup.start(Command(argv={writer(counter)!r}), lifetime="scope", window={WINDOW})
        ballast = fill_disk()
        while written() < 50 * {WINDOW}:  # as long as there is room ahead, the reader keeps up
            await sup.acknowledge(run.id, stdout=sum(len(event.data) for event in await seen("output")))
            await asyncio.sleep(0.01)
        os.ftruncate(ballast, 0)
        while not (dropped := await seen("output.dropped")):
            await asyncio.sleep(0.01)
        before = 0
        while before != (before := written()):
            await asyncio.sleep({STILL})
        await sup.acknowledge(run.id, stdout=1 << 60)
        while written() < before + {WINDOW}:
            await asyncio.sleep(0.01)
        receipt = await sup.stop(run.id)
    report(dropped=dropped[0].detail["bytes"], outcome=receipt.outcome.kind.value)
    """
    prefix = in_a_mount_namespace(f"mount -t tmpfs -o size=40m,mode=700 none '{state}'")
    facts = host(code, state, tmp_path, prefix=prefix)
    assert facts["outcome"] == "cancelled"
    assert facts["dropped"] > 40 * WINDOW
