"""One owner, many disks: for each numbered call of a run's life a fresh one, where that call goes wrong.

``python driver.py FOLDER PLAN`` is started with the shim under it (as OWNER); its workers have it as WORKER.
PLAN is a list of strikes; one without ``skip`` stands for every call that there is, until there are no more.
It prints one JSON object a line: what became of each experiment.  A broken guarantee is its ``broken``.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from durable_supervisor import RunView, Supervisor, SupervisorError
from durable_supervisor.model.errors import ErrorCode
from tests.crash.harness import Ledger, end_all
from tests.crash.world import World, check_guarantees
from tests.lab.disk.faults import ALL, Action, Call, Faults, Role

# Output of several segments, in both streams, with pauses in which syncs are due.
LOUD = "for i in 1 2 3; do head -c 90000 /dev/zero | tr '\\0' x; echo err >&2; sleep 0.01; done"
QUIET = "echo out; echo err >&2"
EVERY = ("absent", "not_started", "finished", "unknown")
PATIENCE = 8.0  # seconds for an answer while the disk is bad
MISSES = 3  # strikes in a row that met no call any more: how many there are varies a little


@dataclass(frozen=True)
class Strike:
    """What goes wrong, from which call on (of those that it can happen to), and for whom."""

    action: int
    role: int
    skip: int = 0
    error: int = 0
    times: int = 1
    loud: bool = False
    made: bool = False  # only once the directory is made and open


def made(folder: Path, *, loud: bool = False) -> World:
    """A directory for a run of its own."""
    state = folder / "state"
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    world = World(state, Ledger(folder))
    world.argv = world.ledger.program(world.request_id, LOUD if loud else QUIET)
    world.options = {"limits": {"max_stdout_bytes": 64_000}} if loud else {}
    return world


async def experiment(faults: Faults, folder: Path, strike: Strike) -> dict[str, Any]:
    world = made(folder, loud=strike.loud)
    told: dict[str, Any] = {}
    if not strike.made:
        arm(faults, strike)
    try:
        told = await life(world, faults, strike)
        faults.disarm()
        told |= {"hits": faults.hits, "call": faults.last}
        found = await check_guarantees(world, EVERY)
        told["settled"] = "absent" if found is None else found.state.value
        told["reason"] = found and found.reason
        hold(told, found)
    except Exception as error:
        faults.disarm()
        told |= {"hits": faults.hits, "call": faults.last}
        told["broken"] = "".join(traceback.format_exception(error))[-6000:]
    end_all(world.state_dir)
    return told


def arm(faults: Faults, strike: Strike) -> None:
    action = Action(strike.action)
    calls = [Call.WRITE] if action in (Action.SHORT, Action.DIE_TORN) else ALL
    faults.arm(
        action, Role(strike.role), calls=calls, error=strike.error, skip=strike.skip, times=strike.times
    )


async def life(world: World, faults: Faults, strike: Strike) -> dict[str, Any]:
    """A start and its end, as an application has it; every refusal must be a typed one."""
    told: dict[str, Any] = {}
    try:
        async with Supervisor.open(world.state_dir) as sup:
            if strike.made:
                arm(faults, strike)
            run = await world.send(sup)
            told["admitted"] = run.state.value
            told["outcome"] = said(await ended(sup, run.id, faults, patient=strike.times > 0))
    except SupervisorError as error:
        told["refused"] = error.code.value
    return told


async def ended(sup: Supervisor, run_id: str, faults: Faults, *, patient: bool) -> RunView | None:
    """What a waiter hears: while the disk is bad, or where that lasts, once it is good again."""
    try:
        return await sup.wait(run_id, timeout=PATIENCE if patient else 1)
    except SupervisorError as error:
        if error.code is not ErrorCode.WAIT_TIMEOUT or patient:
            raise
    faults.disarm()
    return await sup.wait(run_id, timeout=PATIENCE)


def said(view: RunView | None) -> list[Any] | None:
    return view and [view.state.value, view.outcome and view.outcome.code]  # type: ignore[return-value]


def hold(told: dict[str, Any], found: RunView | None) -> None:
    """What was told once stays told, and a bad disk is told as that."""
    assert told.get("refused") != ErrorCode.INTERNAL.value
    if told.get("admitted") is not None:
        assert found is not None, "an admitted run is gone"
    outcome = told.get("outcome")
    if outcome and outcome[0] == "finished":
        assert found is not None
        assert found.state.value == "finished", (outcome, found.state)


async def main(folder: Path, plan: list[dict[str, Any]]) -> None:
    faults = Faults(folder, folder / "disks")
    sys.executable = str(faults.interpreter(folder, Role.WORKER))
    places = (folder / "disks" / str(number) for number in itertools.count())
    for each in plan:
        missed = 0
        for skip in [each["skip"]] if "skip" in each else itertools.count():
            place = next(places)
            told = await experiment(faults, place, Strike(**{**each, "skip": skip}))
            print(json.dumps({**each, "skip": skip, **told}), flush=True)
            if "broken" not in told:
                shutil.rmtree(place)
            missed = 0 if told["hits"] else missed + 1
            if missed == MISSES:
                break


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), json.loads(sys.argv[2])))
