"""What was measured on.  No names of hosts, users or paths."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

from .child import REPOSITORY


def facts(work: Path) -> dict[str, object]:
    """Kernel, processor, memory, file system, Python, SQLite, and the commit of the product."""
    return {
        "kernel": f"{platform.system()} {platform.release()}",
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "filesystem": filesystem(work),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "sqlite": sqlite3.sqlite_version,
        "commit": _commit(),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def load() -> float:
    """Runnable processes, averaged over the last minute: above the cores it was no quiet machine."""
    return round(os.getloadavg()[0], 2)


def filesystem(path: Path) -> str:
    """The type of the file system that holds a path, such as ``ext4``."""
    mounts: list[tuple[str, str]] = []
    with open("/proc/self/mounts", encoding="utf-8", errors="replace") as file:
        for line in file:
            _, point, kind, *_ = line.split(" ")
            mounts.append((point, kind))
    real = path.resolve()
    found = [(len(point), kind) for point, kind in mounts if real.is_relative_to(point)]
    return max(found)[1] if found else "unknown"


def _cpu_model() -> str:
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "Model", "uarch"):
                return value.strip()
    return platform.machine()


def _commit() -> str:
    argv = ["git", "-C", str(REPOSITORY), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=10)
    except OSError:
        return "unknown"
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.stdout.write(f"{facts(Path())}\n")
