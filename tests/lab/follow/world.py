"""A service, the runs that it starts, and all that may happen to them while they are followed."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from durable_supervisor import AsyncClient, Command, Limits, Observer, SupervisorError
from durable_supervisor.model.states import OPEN_STATES, RunState
from durable_supervisor.process.signals import signal_ticks
from durable_supervisor.supervisor.state.state_dir import StateDir, owner_pid
from tests.cli.helpers import COMMAND, environment

# Lines of every length on both streams: some at once, some after a while, some after a long one.
PROGRAM = """
import os, random, sys, time
rng = random.Random(sys.argv[1])
for number in range(rng.randint(5, 120)):
    os.write(rng.choice((1, 1, 2)), b"%d:" % number + b"x" * rng.choice((0, 9, 80, 900, 3000, 9000)) + b"\\n")
    time.sleep(rng.choice((0, 0, 0, 0.002, 0.02, 0.02, 0.1, 0.8)))
"""
CAPS = (32 * 1024, 32 * 1024, 1 << 20)  # segments of 4 KiB, of which some go, and of 128 KiB
SETTLING = ("NOT_RUNNING", "NOT_CONFIRMED", "NOT_RESOLVABLE")  # it has ended meanwhile, or will
LIVE = 6


class World:
    """``runs``: newest last."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.rng = random.Random(seed)
        self.state = folder / "state"
        self.state.mkdir(mode=0o700)
        self.runs: list[str] = []
        self.observers = [Observer.open(self.state) for _ in range(2)]
        self.service = self._serve()
        self.done: dict[str, int] = {}
        self.no_owner = [time.monotonic()]  # when there was none
        self.standing: list[float] = []  # when a worker stood still
        self._asleep: list[tuple[float, int, int]] = []

    # The service.

    def _serve(self) -> subprocess.Popen[bytes]:
        words = [*COMMAND, "serve", "--json", "--allow-root", "--log-level", "error"]
        return subprocess.Popen(words, env=environment(self.state), stdout=subprocess.DEVNULL)

    def keep_going(self) -> None:
        """Wake workers, start services anew, and note when there was need for it."""
        if self._asleep:
            self.standing.append(time.monotonic())
        self.wake()
        if owner_pid(StateDir(str(self.state))) is None:
            self.no_owner.append(time.monotonic())
        if self.service.poll() is not None:
            self.no_owner.append(time.monotonic())
            self.service = self._serve()

    def was_owned(self, since: float, until: float) -> bool:
        """All the time, as far as anybody looked?"""
        return not any(since < one < until for one in self.no_owner)

    def was_calm(self, since: float, until: float) -> bool:
        """And did every worker go on?"""
        return self.was_owned(since, until) and not any(since < one < until for one in self.standing)

    async def start(self, client: AsyncClient) -> None:
        number = len(self.runs)
        cap = self.rng.choice(CAPS)
        limits = Limits(max_stdout_bytes=cap, max_stderr_bytes=cap)
        argv = [sys.executable, "-I", "-S", "-c", PROGRAM, str(self.rng.random())]
        try:
            run = await client.start(Command(argv=argv), request_id=f"run-{number}", limits=limits)
            self.runs.append(run.id)
        except SupervisorError as error:
            if not error.retryable and error.code.value != "SUBMISSION_INDETERMINATE":
                raise

    # What happens.

    async def happen(self) -> None:
        acts = {
            self.kill_worker: 4, self.nap_worker: 4, self.delete_socket: 3, self.evict: 5,
            self.end_service: 1, self.close_observer: 1,
        }  # fmt: skip
        (act,) = self.rng.choices(list(acts), list(acts.values()))
        if await act():
            self.done[act.__name__] = self.done.get(act.__name__, 0) + 1

    async def _some_view(self) -> dict[str, Any] | None:
        if not self.runs:
            return None
        try:
            seen = await self.observers[0].inspect(self.rng.choice(self.runs[-LIVE:]))
        except SupervisorError:
            return None
        return seen.to_dict() if seen.state in OPEN_STATES and seen.worker else None

    async def kill_worker(self) -> bool:
        """And its program as well, or not."""
        seen = await self._some_view()
        if seen is None:
            return False
        with_program = seen["program"] and self.rng.random() < 0.7
        for one in (seen["worker"], *([seen["program"]] if with_program else [])):
            signal_ticks(one["pid"], one["start_ticks"], signal.SIGKILL)
        return True

    async def nap_worker(self) -> bool:
        seen = await self._some_view()
        if seen is None:
            return False
        pid, ticks = seen["worker"]["pid"], seen["worker"]["start_ticks"]
        self.standing.append(time.monotonic())
        self._asleep.append((time.monotonic() + self.rng.choice((0.01, 0.1, 0.5)), pid, ticks))
        return signal_ticks(pid, ticks, signal.SIGSTOP)

    def wake(self, *, everybody: bool = False) -> None:
        now = time.monotonic()
        for item in [item for item in self._asleep if everybody or item[0] <= now]:
            self._asleep.remove(item)
            signal_ticks(item[1], item[2], signal.SIGCONT)

    async def delete_socket(self) -> bool:
        found = list(self.state.glob("runs/*/*.sock"))
        for path in found[:1]:
            path.unlink(missing_ok=True)
        return bool(found)

    async def evict(self) -> bool:
        """Of the logs, what is on the disk leaves the page cache."""
        for run in self.runs[-LIVE:]:
            for path in self.state.glob(f"runs/*/{run}.a*/*.log"):
                await asyncio.to_thread(forget, path)
            for path in self.state.glob(f"runs/*/{run}.a*.log"):
                await asyncio.to_thread(forget, path)
        return True

    async def end_service(self) -> bool:
        self.service.send_signal(self.rng.choice((signal.SIGKILL, signal.SIGTERM)))
        self.no_owner.append(time.monotonic())
        return True

    async def close_observer(self) -> bool:
        """Under those who follow by it."""
        index = self.rng.randrange(len(self.observers))
        old, self.observers[index] = self.observers[index], Observer.open(self.state)
        await old.close()
        return True

    # Afterwards.

    async def settle(self, client: AsyncClient) -> None:
        """All is over, and known to be."""
        while True:
            self.wake(everybody=True)
            self.keep_going()
            try:
                for run in (await client.list(limit=1000, states=OPEN_STATES)).runs:
                    await client.stop(run.id, grace=0.2, timeout=5)
                for run in (await client.list(limit=1000, states=[RunState.QUARANTINED])).runs:
                    await client.resolve(run.id, "kill")
                if not (await client.list(limit=1, states=[*OPEN_STATES, RunState.QUARANTINED])).runs:
                    return
            except SupervisorError as error:
                if not error.retryable and error.code.value not in SETTLING:
                    raise
            await asyncio.sleep(0.1)

    async def close(self) -> None:
        self.wake(everybody=True)
        for one in self.observers:
            await one.close()
        self.service.terminate()
        await asyncio.to_thread(self.service.wait)


def forget(path: Path) -> None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.fdatasync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)
