"""What the contract tests share: real runs under a real supervisor, and a look for survivors."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from durable_supervisor import Command, Limits, Supervisor
from durable_supervisor.model.events import Event, Kind
from durable_supervisor.model.identity import ProcessIdentity
from durable_supervisor.model.run import Run
from durable_supervisor.model.view import RunView
from tests.support import PATIENCE, eventually, eventually_async

_EXECUTING_SECONDS = 10.0  # far more than it takes, also where others use the processors
_numbers = itertools.count(1)


class Marker:
    """A sleep that no other test and nobody else on the machine has: ``sleep {marker}``."""

    def __init__(self) -> None:
        self.text = f"3131.{os.getpid():07d}{next(_numbers):04d}"

    def __str__(self) -> str:
        return self.text

    def alive(self) -> list[int]:
        """Living processes with the marker in their command line.  A zombie has none."""
        return [pid for pid in _pids() if self.text.encode() in _cmdline(pid)]

    def kill(self) -> None:
        for pid in self.alive():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def with_argument(text: str) -> list[int]:
    """Living processes that were given just this."""
    return [pid for pid in _pids() if text.encode() in _cmdline(pid).split(b"\0")]


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _cmdline(pid: int) -> bytes:
    """For a moment the kernel shows none of a process that is just executing another program."""
    deadline = time.monotonic() + _EXECUTING_SECONDS
    while True:
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read()
            if words or time.monotonic() > deadline or state_of(pid) in "ZX":
                return words
            os.readlink(f"/proc/{pid}/exe")  # a thread of the kernel has neither
        except OSError:
            return b""
        time.sleep(0.001)


def state_of(pid: int) -> str:
    """The state letter of /proc/<pid>/stat, or nothing."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return ""


class Runs:
    """A supervisor, and short words for what tests do with it over and over."""

    def __init__(self, sup: Supervisor, state_dir: Path) -> None:
        self.sup = sup
        self.state_dir = state_dir

    async def start(self, argv: list[str], *, completion: str = "leader", **options: Any) -> Run:
        """``options``: fields of `Command` and `Limits`, by their own names."""
        bounds = {name: options.pop(name) for name in list(options) if name in Limits.FIELDS}
        bounds.setdefault("grace", 3)
        command = Command(argv=argv, **options)
        return await self.sup.start(command, limits=Limits(**bounds), completion=completion)

    async def sh(self, script: str, **options: Any) -> Run:
        return await self.start(["sh", "-c", script], **options)

    async def python(self, script: str, **options: Any) -> Run:
        """Without site-packages: it starts in a hundredth of a second."""
        return await self.start([sys.executable, "-I", "-S", "-c", script], **options)

    async def wait(self, run: Run, timeout: float = PATIENCE) -> RunView:
        return await self.sup.wait(run.id, timeout=timeout)

    async def events(self, run: Run, *, size: int = 1000, **filters: Any) -> list[Event]:
        """All there are, paged by ``size``."""
        found: list[Event] = []
        after = 0
        while True:
            page = await self.sup.events(run.id, after=after, limit=size, **filters)
            found += page.events
            if page.next_after == after:
                return found
            after = page.next_after

    async def kinds(self, run: Run) -> list[str]:
        return [event.kind for event in await self.events(run, output=False)]

    async def output(self, run: Run, stream: str = "stdout") -> bytes:
        """What is kept of a stream, in order."""
        found = await self.events(run)
        return b"".join(one.data for one in found if one.kind == Kind.OUTPUT and one.stream == stream)

    async def printed(self, run: Run, text: bytes, stream: str = "stdout") -> None:
        """Wait until the program has written ``text``."""

        async def seen() -> bool:
            return text in await self.output(run, stream)

        await eventually_async(seen, message=f"{text!r} was never printed")

    async def event(self, run: Run, kind: str) -> Event:
        """Wait for the first event of this kind."""

        async def first() -> list[Event]:
            return await self.events(run, kinds={kind})

        found: list[Event] = await eventually_async(first, message=f"no {kind}")
        return found[0]

    async def receipt(self, run: Run) -> dict[str, Any]:
        seen = await self.wait(run)
        assert seen.receipt is not None
        return seen.receipt

    async def worker(self, run_id: str) -> ProcessIdentity:
        """The worker's identity, once it is logged."""

        async def logged() -> dict[str, object] | None:
            return (await self.sup.inspect(run_id)).worker

        return ProcessIdentity.from_dict(await eventually_async(logged))

    def log_bytes(self) -> bytes:
        """Everything in every file of the state directory."""
        return b"".join(path.read_bytes() for path in sorted(self.state_dir.rglob("*")) if path.is_file())


@asynccontextmanager
async def open_runs(state_dir: Path) -> AsyncIterator[Runs]:
    async with Supervisor.open(state_dir) as sup:
        yield Runs(sup, state_dir)


async def rests(pid: int) -> None:
    """Return once this worker is nearly asleep for a third of a second."""

    async def quiet() -> bool:
        before = wake_ups(pid)
        await asyncio.sleep(0.3)  # the time that is measured
        return wake_ups(pid) - before < 6

    await eventually_async(quiet, message="the worker never rests")


def wake_ups(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("voluntary_ctxt_switches"):
            return int(line.split()[1])
    raise AssertionError("no such line")


def check_gapless(events: list[Event]) -> None:
    """Each seq from 1 on is answered once, by its event or by the one dropped range that covers it."""
    expected = 1
    for event in events:
        first = event.detail.get("first_seq", event.seq) if event.kind == Kind.OUTPUT_DROPPED else event.seq
        assert first == expected, (event, first, expected)
        expected = event.seq + 1


def gone(marker: Marker) -> None:
    """Zero survivors: true the moment a stop or a receipt says so, so there is no waiting here."""
    assert marker.alive() == []


def sleeping(marker: Marker) -> int:
    """How many have come to their ``sleep``.  A shell that was forked for it has the marker, too."""
    names = []
    for pid in marker.alive():
        with suppress(FileNotFoundError, ProcessLookupError):
            names.append(Path(f"/proc/{pid}/comm").read_text())
    return names.count("sleep\n")


def appear(marker: Marker, count: int) -> None:
    """Wait until that many processes with the marker are there."""
    eventually(lambda: len(marker.alive()) >= count, message=f"fewer than {count} of {marker}")
