"""How long a person waits for the command to begin, beside the bare interpreter."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ..baselines import Baselines
from ..child import environment
from ..model import Context, NotMeasured, Row
from ..product import end
from ..stats import median, timing

TITLE = "CLI start-up"
ROWS = ("cli.version", "cli.start")


async def measure(ctx: Context) -> list[Row]:
    from durable_supervisor import Supervisor

    command = str(Path(sys.executable).parent / "durable-supervisor")
    if not os.access(command, os.X_OK):
        raise NotMeasured("durable-supervisor is not installed beside this Python")
    pass_, version, start = [], [], []
    with ctx.directory("cli") as directory, Baselines(directory) as base:
        state = str(directory / "state")
        for _ in range(ctx.size(25, 6)):
            base.sample()
            pass_.append(_seconds([sys.executable, "-I", "-c", "pass"]))
            version.append(_seconds([command, "--version"]))
            start.append(_seconds([command, "start", "--state-dir", state, "--", "true"]))
        await end(await Supervisor.open(state))
        numbers = {"python_pass_ms": timing(pass_)["p50_ms"], **base.numbers()}
    # The first start makes the directory and the journal; bytecode is compiled in the first of each.
    version, start = version[1:], start[1:]
    return [
        Row(
            key="cli.version",
            value=median(version) / median(pass_),
            measured=timing(version),
            baseline=numbers,
        ),
        Row(key="cli.start", value=median(start) / median(pass_), measured=timing(start), baseline=numbers),
    ]


def _seconds(argv: Sequence[str]) -> float:
    null = os.open(os.devnull, os.O_RDWR)
    actions = [(os.POSIX_SPAWN_DUP2, null, fd) for fd in (0, 1)]
    begin = time.perf_counter()
    compiling = {"PYTHONDONTWRITEBYTECODE": ""}  # as an installed command: compiled once, not every time
    pid = os.posix_spawn(argv[0], list(argv), environment(compiling), file_actions=actions)
    _, status = os.waitpid(pid, 0)
    took = time.perf_counter() - begin
    os.close(null)
    if status:
        raise RuntimeError(f"{os.path.basename(argv[0])} {argv[1]} failed: wait status {status}")
    return took
