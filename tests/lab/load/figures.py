"""What a process takes of memory and descriptors, and a directory of the disk; printed where it grows."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MIB = 1024 * 1024


def resident(pid: int | str = "self") -> int:
    """Bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def proportional(pid: int) -> int:
    """Bytes of memory that are its own, and its share of what it shares."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no Pss")


def descriptors(pid: int | str = "self") -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def on_disk(path: Path) -> int:
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
            except FileNotFoundError:
                continue
    return total


@contextmanager
def figures(state_dir: Path, what: str) -> Iterator[dict[str, float]]:
    """What grew meanwhile, printed at the end; the body may add its own."""
    before = (resident(), descriptors(), on_disk(state_dir), time.monotonic())
    grown: dict[str, float] = {}
    yield grown
    grown["memory_mib"] = (resident() - before[0]) / MIB
    grown["descriptors"] = descriptors() - before[1]
    grown["disk_mib"] = (on_disk(state_dir) - before[2]) / MIB
    grown["seconds"] = time.monotonic() - before[3]
    tell(what, grown)


def tell(what: str, found: dict[str, float]) -> None:
    print(f"\n{what}: " + ", ".join(f"{name} {value:.1f}" for name, value in found.items()))
