"""A real file system of a real disk image, copied while it is in use: what a lost power leaves of it.

``python ext4.py IMAGE FOLDER COPIES AT_ONCE``, in a mount namespace of its own, makes FOLDER/disk a state
directory's file system and copies the image again and again, each time as of one moment: everybody stands
still meanwhile, and nothing is synced for it.  Each copy is mounted then, which replays its journal.  It
prints one JSON object a line; a broken guarantee is its ``broken``.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from durable_supervisor import Command, Limits, RunState, Supervisor, SupervisorError
from durable_supervisor.process.signals import signal_ticks
from tests.crash.harness import Ledger, end_all, of_runs
from tests.crash.world import World, no_guess
from tests.lab.disk.test_power_loss import reboot
from tests.lab.disk.verdict import RECOVERABLE

CODE = 5
RUNS = 60
BODIES = ("echo out", "for i in 1 2 3; do head -c 30000 /dev/zero | tr '\\0' x; sleep 0.2; done")


async def life(state: Path, folder: Path, at_once: int) -> None:
    """Many short lives; what their caller has been told is noted beside the disk.

    One that comes alone takes the log that was made ahead.
    """
    ledger = Ledger(folder)
    marks = os.open(folder / "marks", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
    turn = asyncio.Semaphore(at_once)

    async def one(sup: Supervisor, number: int) -> None:
        name = f"r-{number}"
        async with turn:
            command = Command(argv=ledger.program(name, BODIES[number % 2], CODE))
            run = await sup.start(command, request_id=name, limits=Limits(max_stdout_bytes=64_000))
            os.write(marks, f"admitted {name}\n".encode())
            await sup.wait(run.id, timeout=60)
            os.write(marks, f"finished {name}\n".encode())

    async with Supervisor.open(state) as sup:
        await asyncio.gather(*(one(sup, number) for number in range(RUNS)))


@dataclass
class Moment:
    """A copy of the disk, and what was known outside of it just then."""

    image: Path
    admitted: set[str] = field(default_factory=set)
    finished: set[str] = field(default_factory=set)
    begun: set[str] = field(default_factory=set)


def take(image: Path, state: Path, folder: Path, host: int, number: int) -> Moment:
    """Everybody stands still while the image is read, until two readings are the same."""
    moment = Moment(folder / f"copy-{number}.img")
    stopped = _stop(host, state)
    try:
        for word, name in (line.split() for line in _lines(folder / "marks")):
            (moment.admitted if word == "admitted" else moment.finished).add(name)
        moment.begun = {line[1] for line in Ledger(folder).lines() if line[0] == "begin"}
        before, now = b"", image.read_bytes()
        while now != before:
            before, now = now, image.read_bytes()
        moment.image.write_bytes(now)
    finally:
        for pid, ticks in stopped:
            signal_ticks(pid, ticks, signal.SIGCONT)
        os.kill(host, signal.SIGCONT)
    return moment


def _stop(host: int, state: Path) -> list[tuple[int, int]]:
    """The host first, so that nobody new comes; then all of its runs, which are answered."""
    os.kill(host, signal.SIGSTOP)
    stopped: list[tuple[int, int]] = []
    while fresh := [one for one in of_runs(state) if one not in stopped]:
        stopped += fresh
        for pid, ticks in fresh:
            signal_ticks(pid, ticks, signal.SIGSTOP)
    return stopped


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


async def judge(moment: Moment, directory: Path, ledger: Ledger) -> str:
    """What was told stays told, and what may have begun is never taken for something that did not."""
    told = ""
    try:
        return await _look(moment, directory, ledger)
    except SupervisorError as error:
        assert error.code in RECOVERABLE, error  # noqa: PT017
        told = f"{error.code.value}, then "
    await Supervisor.recover(directory)
    return told + await _look(moment, directory, ledger)


async def _look(moment: Moment, directory: Path, ledger: Ledger) -> str:
    states: dict[str, int] = {}
    async with Supervisor.open(directory) as sup:
        for name in sorted(moment.admitted | moment.begun):
            world = World(directory, ledger, request_id=name)
            seen = await world.find(sup)
            assert seen is not None, f"{name} was accepted and is forgotten"
            if name in moment.begun:
                assert seen.state is not RunState.NOT_STARTED, f"{name} would be executed again"
            if name in moment.finished:
                assert seen.state is RunState.FINISHED, f"{name}: its caller had its outcome"
            no_guess(world, seen, CODE)
            states[seen.state.value] = states.get(seen.state.value, 0) + 1
    return json.dumps(states)


def each(moment: Moment, folder: Path) -> dict[str, Any]:
    """The copy, mounted."""
    place = folder / "again"
    place.mkdir(exist_ok=True)
    told: dict[str, Any] = {"begun": len(moment.begun), "finished": len(moment.finished)}
    subprocess.run(["mount", "-o", "loop", str(moment.image), str(place)], check=True)
    try:
        directory = place / "state"
        if directory.exists():
            reboot(directory)
            told["found"] = asyncio.run(judge(moment, directory, Ledger(folder)))
    except Exception as error:
        told["broken"] = "".join(traceback.format_exception(error))[-6000:]
    finally:
        subprocess.run(["umount", str(place)], check=True)
    moment.image.unlink()
    return told


def main(image: Path, folder: Path, copies: int, at_once: int) -> None:
    disk = folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-o", "loop", str(image), str(disk)], check=True)
    state = disk / "state"
    dice = random.Random(1)
    life_of = [sys.executable, __file__, "life", str(state), str(folder), str(at_once)]
    with subprocess.Popen(life_of) as host:
        moments: list[Moment] = []
        while len(moments) < copies and host.poll() is None:
            time.sleep(dice.uniform(0.02, 0.3))  # any moment will do
            moments.append(take(image, state, folder, host.pid, len(moments)))
        assert host.wait() == 0
    end_all(state)
    for moment in moments:
        print(json.dumps(each(moment, folder)), flush=True)
    subprocess.run(["umount", str(disk)], check=True)
    shutil.rmtree(disk)


if __name__ == "__main__":
    if sys.argv[1] == "life":
        asyncio.run(life(Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])))
    else:
        main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
