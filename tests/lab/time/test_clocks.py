"""The wall clock steps, the machine sleeps: deadlines, order and identities do not care.

Owner and workers have a shim under them that adds to what the kernel's clocks say.
"""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from durable_supervisor import Observer, RunState, Supervisor
from durable_supervisor.model.events import Kind
from tests.contract.hosts import HostScript
from tests.contract.runs import check_gapless
from tests.lab.forms import FULL
from tests.support import PATIENCE, eventually_async

SECOND = 1_000_000_000
YEAR = 365 * 86400
SOURCE = Path(__file__).with_name("clock.c")
# The short times are those that starting a program, and looking at it, may take on a busy machine.
HOST = """
sys.executable = os.environ["LAB_PYTHON"]
async with Supervisor.open(STATE) as sup:
    async def start(name, script, **limits):
        command = Command(argv=["sh", "-c", script], stdin="open")
        return (await sup.start(command, request_id=name, limits=Limits(grace=1, **limits))).id
    report(
        asked=await start("asked", "echo up; read line; echo down; exit 5"),
        bounded=await start("bounded", "echo up; exec sleep 60", timeout=5),
        silent=await start("silent", "echo up; exec sleep 60", idle_timeout=4),
        patient=await start("patient", "echo up; exec sleep 60", idle_timeout=600, timeout=3000),
    )
    await stay()
"""


class Clocks:
    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("gcc") or shutil.which("cc")
        if compiler is None or sys.platform != "linux":
            pytest.skip("the clock shim needs Linux and a C compiler")
        self._library = folder / "clock.so"
        options = ["-O1", "-Wall", "-Wextra", "-shared", "-fPIC"]
        subprocess.run([compiler, *options, "-o", self._library, SOURCE], check=True)
        self._file = folder / "clocks"
        self._file.write_bytes(bytes(24))
        with open(self._file, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), 24)
        python = folder / "python"
        under = {"LD_PRELOAD": str(self._library), "LAB_CLOCKS": str(self._file)}
        words = " ".join(f"{name}='{value}'" for name, value in under.items())
        python.write_text(f"#!/bin/sh\nexec env {words} '{sys.executable}' \"$@\"\n")
        python.chmod(0o755)
        self.environment = {**under, "LAB_PYTHON": str(python)}

    def step(self, wall: float) -> None:
        """The wall clock is so many seconds from what the kernel says."""
        self._map[:] = struct.pack("@3q", int(wall * SECOND), 0, 0)

    def sleep(self) -> int:
        """CLOCK_MONOTONIC stands still until `wake`, which takes the answer."""
        now = time.monotonic_ns()
        self._map[:] = struct.pack("@3q", 0, 0, now)
        return now

    def wake(self, asleep: int) -> None:
        self._map[:] = struct.pack("@3q", 0, asleep - time.monotonic_ns(), 0)

    def close(self) -> None:
        self._map.close()


@pytest.fixture
def clocks(tmp_path: Path) -> Iterator[Clocks]:
    found = Clocks(tmp_path)
    yield found
    found.close()


async def printed(state_dir: Path, runs: dict[str, str]) -> None:
    async def up() -> bool:
        async with Observer.open(state_dir) as seen:
            pages = [await seen.events(run, kinds={Kind.OUTPUT}) for run in runs.values()]
        return all(page.events for page in pages)

    await eventually_async(up)


STEPS = {
    "forward a day": 86400.0,
    "back a day": -86400.0,
    "beyond 2038": 15 * YEAR,
    "to the epoch": -time.time() + 10,
}


CHOSEN = list(STEPS) if FULL else ["to the epoch"]


@pytest.mark.parametrize("step", [STEPS[name] for name in CHOSEN], ids=CHOSEN)
async def test_the_wall_clock_steps(state_dir: Path, tmp_path: Path, clocks: Clocks, step: float) -> None:
    with HostScript(HOST, state_dir, tmp_path, env=clocks.environment) as owner:
        runs = owner.facts(PATIENCE)
        clocks.step(step)
        await printed(state_dir, runs)
        async with Observer.open(state_dir) as seen:
            silent = await seen.wait(runs["silent"], timeout=PATIENCE)
            bounded = await seen.wait(runs["bounded"], timeout=PATIENCE)
            patient = await seen.inspect(runs["patient"])
        assert silent.outcome is not None
        assert silent.outcome.kind.value == "idle_timed_out"
        assert bounded.outcome is not None
        assert bounded.outcome.kind.value == "timed_out"
        assert patient.state is RunState.RUNNING, "a step is no hour of waiting"
        owner.kill()
    # The next owner has the true clock again: another step for whoever would trust the wall.
    await check_next_owner(state_dir, runs)


async def check_next_owner(state_dir: Path, runs: dict[str, str]) -> None:
    async with Supervisor.open(state_dir) as sup:
        assert (await sup.inspect(runs["asked"])).state is RunState.RUNNING
        await sup.write_stdin(runs["asked"], b"\n")
        asked = await sup.wait(runs["asked"], timeout=PATIENCE)
        assert asked.outcome is not None
        assert asked.outcome.code == 5
        stopped = await sup.stop(runs["patient"])
        assert stopped.confirmed
        assert stopped.outcome is not None
        assert stopped.outcome.kind.value == "cancelled"
        for run in runs.values():
            page = await sup.events(run, limit=1000)
            check_gapless(page.events)
            elapsed = [event.elapsed_ns for event in page.events]
            assert elapsed == sorted(elapsed)
        assert len((await sup.list()).runs) == len(runs)


async def test_the_machine_sleeps(state_dir: Path, tmp_path: Path, clocks: Clocks) -> None:
    """CLOCK_MONOTONIC stands still then: the wall deadline is over afterwards, the idle time is not."""
    with HostScript(HOST, state_dir, tmp_path, env=clocks.environment) as owner:
        runs = owner.facts(PATIENCE)
        await printed(state_dir, runs)
        asleep = clocks.sleep()
        async with Observer.open(state_dir) as seen:
            bounded = await seen.wait(runs["bounded"], timeout=PATIENCE)
            silent = await seen.inspect(runs["silent"])
            assert silent.state is RunState.RUNNING, "a suspended laptop is not a silent program"
            clocks.wake(asleep)
            silent = await seen.wait(runs["silent"], timeout=PATIENCE)
        assert bounded.outcome is not None
        assert bounded.outcome.kind.value == "timed_out"
        assert silent.outcome is not None
        assert silent.outcome.kind.value == "idle_timed_out"
        owner.kill()
    await check_next_owner(state_dir, runs)
