"""A program with a window is held back until its output is acknowledged, and by nothing else."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from durable_supervisor import Command, Limits
from durable_supervisor.model.answers import Run
from tests.contract.runs import Runs
from tests.support import eventually_async

WINDOW = 64 * 1024
PIPE = 64 * 1024  # what one holds (pipe(7)), on top of the window
# Writes for ever, and counts in a file what it got rid of.
WRITER = """
import os, sys
counter = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT, 0o600)
written = 0
while True:
    written += os.write(int(sys.argv[2]), b"x" * 4096)
    os.pwrite(counter, b"%d" % written, 0)
"""


def writer(counter: Path, stream: int = 1) -> list[str]:
    import sys

    return [sys.executable, "-I", "-S", "-c", WRITER, str(counter), str(stream)]


async def windowed(runs: Runs, argv: list[str], **options: Any) -> Run:
    limits = Limits(**{"grace": 3, **options.pop("limits", {})})
    return await runs.sup.start(
        Command(argv=argv, **options), limits=limits, lifetime="scope", window=WINDOW
    )


def count(counter: Path) -> int:
    try:
        return int(counter.read_text() or 0)
    except FileNotFoundError:
        return 0


async def blocked(counter: Path, above: int) -> int:
    """Wait until it has written more than ``above``, and then nothing for a while; how much."""
    seen, since = -1, time.monotonic()

    def still() -> bool:
        nonlocal seen, since
        now = count(counter)
        if now != seen:
            seen, since = now, time.monotonic()
        return now > above and time.monotonic() - since > 0.3

    await eventually_async(still, timeout=20, message="it went on writing")
    return seen


@pytest.mark.parametrize("pty", [False, True], ids=["pipe", "terminal"])
async def test_it_blocks_and_goes_on(runs: Runs, tmp_path: Path, pty: bool) -> None:
    from durable_supervisor import Terminal

    counter = tmp_path / "counter"
    run = await windowed(runs, writer(counter), pty=Terminal() if pty else None)
    first = await blocked(counter, 0)
    assert WINDOW <= first <= WINDOW + PIPE + 4096
    assert len(await runs.output(run)) == WINDOW
    for _ in range(3):
        consumed = len(await runs.output(run))
        await runs.sup.acknowledge(run.id, stdout=consumed)
        await blocked(counter, first)
        first = count(counter)
        assert len(await runs.output(run)) == consumed + WINDOW
    await runs.sup.stop(run.id)
    assert (await runs.receipt(run))["stop"]["reason"] == "stop"
