"""Drives one peer, in a process of its own, and measures it.

    python -m bench.peers.harness MODULE DIRECTORY TOOLS_JSON [--quick]

Prints ``{"version", "durability", "figures", "baseline", "note"}``.  Imports nothing but the standard
library and this package's own plain modules: the peer's environment has no more.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import time
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from .. import orphans
from ..baselines import TRUE, Baselines
from ..procfs import command_line, descendants, memory
from ..stats import median, ms, p99

SH = shutil.which("sh") or "/bin/sh"
SLEEP = shutil.which("sleep") or "/bin/sleep"
AT_ONCE = 16
BUDGET = 12.0  # seconds for each of the loops; what was done by then counts
_BLOCK = 65536
FAILING = (SH, "-c", "exit 7")
IDLE = (SLEEP, "3600")


@dataclass(frozen=True, slots=True)
class Sizes:
    runs: int
    stream: int  # bytes
    idle: int


FULL = Sizes(200, 100_000_000, 50)
SLOW = Sizes(40, 100_000_000, 50)
QUICK = Sizes(20, 10_000_000, 5)
QUICK_SLOW = Sizes(4, 1_000_000, 3)


class Peer:
    """What every peer must be able to do.  ``start`` returns when the peer says it has the job."""

    DURABLE = "nothing"
    NOTE = ""
    SLOW = False
    STREAMS = True  # does it capture output at all?
    IDLES = True  # can 50 jobs be live at once?

    def __init__(self, directory: Path, tools: Mapping[str, str]) -> None:
        self.directory = directory
        self.tools = tools

    def version(self) -> str:
        return ""

    def open(self, commands: Mapping[tuple[str, ...], int]) -> None:
        """Begin; ``commands`` tells which will be started, and how many of each at once."""

    def close(self) -> None:
        """End.  What is left below this process is killed afterwards."""

    def start(self, argv: Sequence[str]) -> Any:
        raise NotImplementedError

    def wait(self, job: Any) -> int:
        """The exit code."""
        raise NotImplementedError

    # The loops; an asynchronous peer has its own.

    def one(self, argv: Sequence[str], code: int = 0) -> tuple[float, float]:
        """Seconds until acknowledged, and until the exit code is known."""
        begin = time.perf_counter()
        job = self.start(argv)
        acked = time.perf_counter() - begin
        check(self.wait(job), code)
        return acked, time.perf_counter() - begin

    def many(self, argv: Sequence[str], runs: int) -> float:
        """Runs a second, 16 callers."""
        end = time.perf_counter() + BUDGET
        left = iter(range(runs))

        def caller() -> int:
            done = 0
            for _ in left:
                self.one(argv)
                done += 1
                if time.perf_counter() > end:
                    break
            return done

        begin = time.perf_counter()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            done = sum(future.result() for future in [pool.submit(caller) for _ in range(AT_ONCE)])
        return done / (time.perf_counter() - begin)

    def idle(self, argv: Sequence[str], count: int) -> None:
        """``count`` live jobs that say nothing."""
        for _ in range(count):
            self.start(argv)


class AsyncPeer(Peer):
    """A peer with an asynchronous interface: one loop, no threads."""

    def __init__(self, directory: Path, tools: Mapping[str, str]) -> None:
        super().__init__(directory, tools)
        self.loop = asyncio.new_event_loop()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    async def astart(self, argv: Sequence[str]) -> Any:
        raise NotImplementedError

    async def await_exit(self, job: Any) -> int:
        raise NotImplementedError

    async def aone(self, argv: Sequence[str], code: int = 0) -> tuple[float, float]:
        begin = time.perf_counter()
        job = await self.astart(argv)
        acked = time.perf_counter() - begin
        check(await self.await_exit(job), code)
        return acked, time.perf_counter() - begin

    def one(self, argv: Sequence[str], code: int = 0) -> tuple[float, float]:
        found: tuple[float, float] = self.run(self.aone(argv, code))
        return found

    def many(self, argv: Sequence[str], runs: int) -> float:
        begin = time.perf_counter()
        left = iter(range(runs))

        async def caller() -> None:
            for _ in left:
                await self.aone(argv)

        async def all_callers() -> None:
            await asyncio.gather(*(caller() for _ in range(AT_ONCE)))

        self.run(all_callers())
        return runs / (time.perf_counter() - begin)

    def idle(self, argv: Sequence[str], count: int) -> None:
        for _ in range(count):
            self.run(self.astart(argv))


def check(found: int, wanted: int) -> None:
    if found != wanted:
        raise RuntimeError(f"exit code {found} was reported, {wanted} was meant")


def measure(peer: Peer, quick: bool) -> dict[str, object]:
    sizes = (QUICK_SLOW if peer.SLOW else QUICK) if quick else SLOW if peer.SLOW else FULL
    report = peer.directory / "report"
    writer = peer.tools.get("writer", "")
    stream = (writer, "blocks", str(_BLOCK), str(sizes.stream // _BLOCK), str(report))
    true = (TRUE,)
    with Baselines(peer.directory) as base:
        peer.open({true: AT_ONCE, FAILING: 1, stream: 1, IDLE: sizes.idle})
        try:
            peer.one(true)
            peer.one(FAILING, 7)  # does it really know?
            figures = _latency(peer, base, true, sizes.runs)
            figures["runs_per_s"] = round(peer.many(true, sizes.runs if peer.SLOW else sizes.runs * 2), 1)
            base.sample(10)
            if peer.IDLES:
                figures["idle_mb"] = _idle(peer, sizes.idle)
            if peer.STREAMS and writer:
                _, seconds = peer.one(stream)
                figures["mb_per_s"] = round(sizes.stream / seconds / 1e6, 1)
            base.sample(10)
        finally:
            peer.close()
            orphans.end_all()
        numbers = base.numbers()
    return {
        "version": peer.version(),
        "durability": peer.DURABLE,
        "figures": figures,
        "baseline": numbers,
        "note": peer.NOTE,
    }


def _latency(peer: Peer, base: Baselines, argv: Sequence[str], runs: int) -> dict[str, float]:
    acked: list[float] = []
    known: list[float] = []
    end = time.perf_counter() + BUDGET
    while len(known) < runs and time.perf_counter() < end:
        base.sample()
        first, second = peer.one(argv)
        acked.append(first)
        known.append(second)
    return {
        "acked_ms": ms(median(acked)),
        "exit_known_ms": ms(median(known)),
        "exit_known_p99_ms": ms(p99(known)),
        "runs": len(known),
    }


def _idle(peer: Peer, count: int) -> float:
    before = _memory()
    peer.idle(IDLE, count)
    time.sleep(1.0)  # what they still do after the start is over by then
    return round((_memory() - before) / count, 3)


def _memory() -> float:
    """PSS in MB of this process and all of the peer's; the jobs' own programs are left out."""
    total = 0.0
    for pid in (os.getpid(), *descendants(os.getpid())):
        words = command_line(pid)
        if words and not words.startswith(SLEEP):
            total += memory(pid)["pss_mb"]
    return total


def main(module: str, directory: str, tools: str, quick: bool) -> None:
    orphans.adopt()  # daemons that the peer detaches stay below us, to be weighed and ended
    kind: type[Peer] = import_module(f"bench.peers.{module}").Peer
    peer = kind(Path(directory), json.loads(tools))
    sys.stdout.write(json.dumps(measure(peer, quick)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], "--quick" in sys.argv)
