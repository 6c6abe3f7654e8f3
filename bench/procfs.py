"""Memory and wake-ups as the kernel counts them."""

from __future__ import annotations

import os
import re

_ROLLUP = re.compile(r"^(Rss|Pss):\s+(\d+) kB$", re.MULTILINE)
_VOLUNTARY = re.compile(r"^voluntary_ctxt_switches:\s+(\d+)$", re.MULTILINE)


def memory(pid: int) -> dict[str, float]:
    """``{"pss_mb", "rss_mb"}``.  A page shared by n processes counts 1/n in PSS, so its sums are true."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        found = dict(_ROLLUP.findall(file.read()))
    return {"pss_mb": int(found["Pss"]) / 1024, "rss_mb": int(found["Rss"]) / 1024}


def wakeups(pid: int) -> int:
    """Voluntary context switches of all threads of a process so far."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/status", encoding="utf-8", errors="replace") as file:
            found = _VOLUNTARY.search(file.read())
        total += int(found[1]) if found else 0
    return total


def children(pid: int) -> list[int]:
    """Direct children, of every thread."""
    found: list[int] = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
            found += map(int, file.read().split())
    return found


def descendants(pid: int) -> list[int]:
    """All below a process, parents before their children.  What ends meanwhile is left out."""
    found: list[int] = []
    try:
        below = children(pid)
    except FileNotFoundError:
        return found
    for child in below:
        found += [child, *descendants(child)]
    return found


def command_line(pid: int) -> str:
    """Arguments joined by blanks; empty when it has ended."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode(errors="replace")
    except FileNotFoundError:
        return ""


def mapped(pid: int) -> str:
    """What is mapped into a process, as the kernel lists it."""
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
        return file.read()


def zygote_of(supervisor: int) -> int | None:
    """The zygote of a supervisor's process, once it has one."""
    return next((pid for pid in children(supervisor) if "zygote.py" in command_line(pid)), None)
