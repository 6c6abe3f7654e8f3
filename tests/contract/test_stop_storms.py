"""Trees that fork while they are being stopped."""

from __future__ import annotations

import asyncio
import signal

import pytest

from durable_supervisor.model.outcome import Outcome, OutcomeKind
from tests.contract.runs import Marker, Runs, gone
from tests.support import eventually

DEAF = "import os, signal, sys\nfor one in (1, 2, 15): signal.signal(one, signal.SIG_IGN)\n"
# Never more than one process, never the same one for long.
COMET = DEAF + "print('go', flush=True)\nwhile os.fork() == 0: {step}\nos._exit(0)\n"
# Workers that replace each other, watched over by nobody.
SWARM = (
    DEAF
    + """
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print('go', flush=True)
for _ in range(8):
    if os.fork() == 0:
        while os.fork() == 0:
            {step}
        os._exit(0)
signal.pause()
"""
)
# Respawns whoever is killed, as a supervisor would.
RESPAWN = (
    DEAF
    + """
print('go', flush=True)
while True:
    for _ in range(5):
        if os.fork() == 0:
            os.setsid()
            signal.pause()
    os.wait()
"""
)
# Doubles until the bound.
BOMB = (
    DEAF
    + """
print('go', flush=True)
for _ in range(7):
    os.fork()
while True:
    signal.pause()
"""
)


@pytest.mark.parametrize(
    "script",
    [COMET.format(step="pass"), COMET.format(step="os.setsid()"), SWARM.format(step="pass"),
     SWARM.format(step="os.setsid()"), RESPAWN, BOMB],
    ids=["comet", "comet-new-sessions", "swarm", "swarm-new-sessions", "respawn", "bomb"],
)  # fmt: skip
async def test_a_storm_is_stopped(runs: Runs, marker: Marker, script: str) -> None:
    run = await runs.python(f"# {marker}\n{script}", completion="tree")
    await runs.printed(run, b"go")
    eventually(marker.alive)
    async with asyncio.timeout(60):  # 10 s of kill rounds, on a machine that the storm itself has slowed
        receipt = await runs.sup.stop(run.id, grace=0.1)
    for _ in range(20):
        gone(marker)  # one look could miss a process that never stays
    assert receipt.outcome in (
        Outcome(OutcomeKind.CANCELLED, signal=signal.SIGKILL), Outcome(OutcomeKind.CANCELLED, code=0)
    )  # fmt: skip
    assert (await runs.receipt(run))["survivors"] == []
