"""What a process that does not answer is at: read before the test fails, since nobody can ask afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from durable_supervisor.process.identity import read_stat
from durable_supervisor.process.tree import descendants

# Of an interpreter: at SIGABRT it writes the stacks of all its threads to its stderr, and dies.
TELLS_ITS_STACKS = ("-X", "faulthandler")
_DUMP_SECONDS = 5.0


def ask_for_stacks(process: subprocess.Popen[bytes]) -> str:
    """End a process that was started with `TELLS_ITS_STACKS`; what the kernel knows of it and of its tree.

    Its stacks are in its stderr then, unless it was stopped, or hangs in the kernel.
    """
    known = look_at(process.pid)
    process.send_signal(signal.SIGABRT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_DUMP_SECONDS)
    return known


def look_at(pid: int) -> str:
    """A line for the machine, one for each thread of ``pid``, one for each process below it."""
    return "\n".join([_machine(), *_threads(pid), *_tree(pid)])


def _machine() -> str:
    load = " ".join(f"{part:.1f}" for part in os.getloadavg())
    return f"load {load}; {_line('/proc/pressure/cpu')}; memory {_line('/proc/pressure/memory')}"


def _threads(pid: int) -> list[str]:
    try:
        tasks = sorted(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return [f"{pid}: gone"]
    return [f"thread {task.name}: {_at(task)}" for task in tasks]


def _tree(pid: int) -> list[str]:
    return [f"below it {stat.pid}: {_at(Path(f'/proc/{stat.pid}'))}" for stat in descendants(pid)]


def _at(process: Path) -> str:
    """Its state, where in the kernel it waits, and how long it has run and waited for a processor."""
    stat = read_stat(int(process.name))
    ran, waited = (int(word) / 1e9 for word in (_line(process / "schedstat") or "0 0").split()[:2])
    state = "gone" if stat is None else stat.state
    calls = [line.split()[-1].partition("+")[0] for line in _text(process / "stack").splitlines()]
    place = " < ".join(calls) or _line(process / "wchan")
    call = _line(process / "syscall").partition(" ")[0]
    return (
        f"{_line(process / 'comm')} {state} in {place} (call {call}), "
        f"ran {ran:.2f} s, was kept from it {waited:.2f} s"
    )


def _line(path: str | Path) -> str:
    return _text(path).partition("\n")[0]


def _text(path: str | Path) -> str:
    """Empty where the kernel has no such file, or does not show it to us."""
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
