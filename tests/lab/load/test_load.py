"""Many at once, many in a row, one at full output with a follower that stands still: bounded, and printed.

The bounds are on what grows: memory and descriptors of the owner, disk, and no run lost.  Times depend on the
machine and what else it does, and are only printed.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from durable_supervisor import Command, Limits, RunState, Supervisor
from durable_supervisor.model.run import Run
from durable_supervisor.process.tree import children_of
from tests.lab.forms import FULL
from tests.lab.load.figures import MIB, descriptors, figures, on_disk, proportional
from tests.support import eventually_async

AT_ONCE = 500 if FULL else 25
IN_A_ROW = 5000 if FULL else 60
SECONDS = 60 if FULL else 1
PATIENCE = 600 if FULL else 60
SIDE_BY_SIDE = 8
KEPT = 2 * 32  # descriptors: two for each worker that may have another run, until it is let go of

pytestmark = pytest.mark.timeout(1800 if FULL else 120)


def spread(times: list[float]) -> dict[str, float]:
    """Milliseconds."""
    ordered = sorted(times)
    return {
        "start_ms_median": ordered[len(ordered) // 2] * 1000,
        "start_ms_99th": ordered[len(ordered) * 99 // 100] * 1000,
        "start_ms_worst": ordered[-1] * 1000,
    }


async def test_many_live_at_once(state_dir: Path) -> None:
    """Each with a worker of its own, all reached, all stopped; nothing is left of them."""
    others = len(children_of(os.getpid()))  # of tests before this one: a service that they share, say
    async with Supervisor.open(state_dir) as sup:
        warm = await sup.start(Command(argv=["true"]))
        await sup.wait(warm.id, timeout=PATIENCE)
        with figures(state_dir, f"{AT_ONCE} live at once") as grown:
            times: list[float] = []
            runs: list[Run] = []
            for number in range(AT_ONCE):
                began = time.monotonic()
                command = Command(argv=["sh", "-c", "read line; exit 5"], stdin="open")
                runs.append(await sup.start(command, request_id=f"live-{number}"))
                times.append(time.monotonic() - began)
            grown |= spread(times)
            workers = [int(str(dict((await sup.inspect(run.id)).worker or {})["pid"])) for run in runs[:20]]
            grown["worker_pss_mib"] = sum(map(proportional, workers)) / len(workers) / MIB
            grown["descriptors_live"] = descriptors()
            began = time.monotonic()
            assert len((await sup.list(limit=1000)).runs) == AT_ONCE + 1
            grown["list_ms"] = (time.monotonic() - began) * 1000
            for run in runs:
                await sup.write_stdin(run.id, b"\n")
            for run in runs:
                seen = await sup.wait(run.id, timeout=PATIENCE)
                assert seen.outcome is not None
                assert seen.outcome.code == 5
            await sup.reconcile()
        assert grown["descriptors"] <= 8
        assert grown["memory_mib"] < 64
        assert grown["worker_pss_mib"] < 12
        most = others + 1  # the zygote
        await eventually_async(lambda: len(children_of(os.getpid())) <= most, PATIENCE, "workers are left")


async def test_many_short_ones_in_a_row(state_dir: Path) -> None:
    async with Supervisor.open(state_dir) as sup:
        times: list[float] = []

        async def lane(first: int) -> None:
            for number in range(first, IN_A_ROW, SIDE_BY_SIDE):
                began = time.monotonic()
                run = await sup.start(Command(argv=["true"]), request_id=f"short-{number}")
                times.append(time.monotonic() - began)
                assert (await sup.wait(run.id, timeout=PATIENCE)).state is RunState.FINISHED
                if number % 1000 == 0:
                    print(f"{number} so far", flush=True)

        before = descriptors()
        with figures(state_dir, f"{IN_A_ROW} short ones in a row") as grown:
            await asyncio.gather(*(lane(first) for first in range(SIDE_BY_SIDE)))
            grown |= spread(times)
            await sup.reconcile()
            grown["log_kib_each"] = on_disk(state_dir / "runs") / 1024 / IN_A_ROW
        assert grown["descriptors"] <= 8 + KEPT
        await eventually_async(lambda: descriptors() <= before + 8, PATIENCE, "descriptors are left")
        assert grown["memory_mib"] < 64
        assert grown["log_kib_each"] < 16
        wal = state_dir / "journal.db-wal"
        assert wal.stat().st_size < 32 * MIB


async def test_one_at_full_output_with_a_follower_that_stands_still(state_dir: Path) -> None:
    """The program goes at its own speed; its log keeps to its cap, the owner to its size."""
    cap = 16 * MIB
    async with Supervisor.open(state_dir) as sup:
        command = Command(argv=["sh", "-c", "yes 'a line of some length, over and over again'"])
        with figures(state_dir, f"full output for {SECONDS} s") as grown:
            run = await sup.start(command, limits=Limits(timeout=SECONDS, grace=1, max_stdout_bytes=cap))
            follower = sup.follow(run.id)
            first = await anext(follower)
            assert first.seq == 1
            most = 0
            while (await sup.inspect(run.id)).state is not RunState.FINISHED:
                most = max(most, on_disk(state_dir / "runs"))
                await asyncio.sleep(0.2)
            seen = await sup.wait(run.id, timeout=PATIENCE)
            grown["most_on_disk_mib"] = most / MIB
            rest = [event async for event in follower]
        assert seen.outcome is not None
        assert seen.outcome.kind.value == "timed_out"
        receipt = dict(seen.receipt or {})
        output = dict(receipt["output"])["stdout"]  # type: ignore[call-overload]
        print(f"written {output['bytes'] / MIB:.0f} MiB, {output['bytes'] / MIB / SECONDS:.0f} MiB/s")
        assert rest[-1].seq == seen.head
        assert most < 2 * cap
        assert grown["memory_mib"] < 8 * cap / MIB
