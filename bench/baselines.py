"""F, S and B: what the disk and the kernel ask for, sampled around every figure.

F is one 4 KiB append and fdatasync, S one posix_spawn and wait of ``true``, B their sum.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from .stats import median, ms, p99

_BLOCK = b"\0" * 4096
TRUE = shutil.which("true") or "/bin/true"
SPAWN_MANY = Path(__file__).parent / "programs" / "spawn_many.py"


class Baselines:
    """Samples of F and S beside a figure; the file lies where the figure's own files lie."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "baseline"
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._f: list[float] = []
        self._s: list[float] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)
        self._path.unlink(missing_ok=True)

    def sample(self, times: int = 1) -> None:
        """One F and one S each time."""
        for _ in range(times):
            self._f.append(append_and_sync(self._fd))
            self._s.append(spawn_and_wait())

    @property
    def f(self) -> float:
        """Median of F, seconds."""
        return median(self._f)

    @property
    def s(self) -> float:
        """Median of S, seconds."""
        return median(self._s)

    @property
    def b(self) -> float:
        return self.f + self.s

    def numbers(self) -> dict[str, float]:
        return {
            "F_ms": ms(self.f),
            "F_p99_ms": ms(p99(self._f)),
            "S_ms": ms(self.s),
            "S_p99_ms": ms(p99(self._s)),
            "B_ms": ms(self.b),
        }


def append_and_sync(fd: int) -> float:
    begin = time.perf_counter()
    os.write(fd, _BLOCK)
    os.fdatasync(fd)
    return time.perf_counter() - begin


def spawn_and_wait() -> float:
    begin = time.perf_counter()
    # By its exact pid: other children of this process are not ours to reap.
    os.waitpid(os.posix_spawn(TRUE, [TRUE], {}), 0)
    return time.perf_counter() - begin


def spawns_per_second(count: int, at_once: int) -> float:
    """``true`` by posix_spawn, ``at_once`` of them always under way, in a process of its own."""
    argv = [sys.executable, "-I", "-S", str(SPAWN_MANY), TRUE, str(count), str(at_once)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    return float(json.loads(done.stdout)["runs_per_s"])
