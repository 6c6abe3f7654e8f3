"""Imports while their disk goes bad: one that is full from a step on, or any single call to it that fails.

``python importing.py full MOUNT FOLDER`` makes MOUNT a real small file system, and that as small as what is
on it from each step of an import on.  ``python importing.py calls PLACE FOLDER ERROR CALL…`` is started
with the shim under it: in a directory of its own each, that call below ``imported`` fails so; without
numbers each one that there is.  Both print one JSON object an experiment; a broken promise is its ``broken``.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from durable_supervisor import Supervisor, SupervisorError
from durable_supervisor.process.identity import read_stat
from durable_supervisor.upkeep.verify import verify
from tests.crash.harness import Host, Refused, end_all
from tests.imports.bundles import exported, finished, imported
from tests.lab.disk.faults import Action, Faults, Role
from tests.lab.forms import FULL
from tests.support import eventually

ROOM = "320m"  # more than an import wants to leave alone
LOUD = "head -c 3000000 /dev/urandom; exit 3"  # of several segments, and nothing to compress
# From which step on there is no room, and what becomes of it: at the last all that is left is to name it.
STEPS = {
    "": "NO_SPACE",
    "import.copied": "NO_SPACE",
    "import.checked": "NO_SPACE",
    "import.synced": "imported",
}
CHOSEN = list(STEPS) if FULL else ["import.copied"]


async def bundle_in(folder: Path) -> tuple[str, Path]:
    """A run of another directory, and its bundle."""
    async with Supervisor.open(folder / "theirs") as sup:
        run = await finished(sup, script=LOUD)
    return run.id, exported(folder / "theirs", run.id, folder / "run.zip")


async def goes_on(state: Path, run: str, bundle: Path, admission: str) -> None:
    """The disk is good again: the directory has all of the run, or nothing and takes it now."""
    there = admission == "already"
    assert bool(imported(state)) == there
    assert (await verify(state)).findings == []
    async with Supervisor.open(state) as sup:
        assert [view.id for view in (await sup.list()).runs] == ([run] if there else [])
        assert (await sup.import_(bundle)).admission == admission
        assert (await sup.events(run)).events
        assert (await finished(sup)).outcome is not None
    assert (await verify(state)).findings == []


class Tmpfs:
    """Small at will: what is on it stays, and nothing more fits."""

    def __init__(self, mount: Path) -> None:
        self.mount = mount
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "none", str(mount)], check=True)

    def full(self) -> None:
        found = os.statvfs(self.mount)
        self._resize(str((found.f_blocks - found.f_bfree) * found.f_frsize))

    def good(self) -> None:
        self._resize(ROOM)

    def _resize(self, size: str) -> None:
        subprocess.run(["mount", "-o", f"remount,size={size}", str(self.mount)], check=True)


async def full_from(step: str, disk: Tmpfs, run: str, bundle: Path) -> dict[str, Any]:
    state = disk.mount / (step or "before")
    state.mkdir(mode=0o700)
    with Host(state, f"{step}=pause" if step else "") as host:
        host.opened()
        if not step:
            disk.full()
        asked = host.tell("import_", bundle=str(bundle))
        if step:
            await asyncio.to_thread(eventually, lambda: (one := read_stat(host.pid)) and one.state == "T")
            disk.full()
            os.kill(host.pid, signal.SIGCONT)
        try:
            told = (await asyncio.to_thread(host.answer, asked))["admission"]
        except Refused as refused:
            told = refused.code
        host.ask("reconcile")  # it is still there
    disk.good()
    assert told == STEPS[step], told
    await goes_on(state, run, bundle, "already" if told == "imported" else "imported")
    return {"told": told}


async def call_fails(
    skip: int, error: int, faults: Faults, state: Path, run: str, bundle: Path
) -> dict[str, Any]:
    state.mkdir(mode=0o700)
    async with Supervisor.open(state) as sup:
        faults.arm(Action.FAIL, Role.OWNER, path="/imported", error=error, skip=skip)
        try:
            told = (await sup.import_(bundle)).admission.value
        except SupervisorError as refused:
            told = refused.code.value
        faults.disarm()
        kept = bool(imported(state))
    assert told in ("imported", "NO_SPACE", "STATE_DIR_REFUSED"), told
    assert kept == (told == "imported"), told
    await goes_on(state, run, bundle, "already" if kept else "imported")
    return {"told": told, "call": faults.last}


async def tell(each: dict[str, Any], work: Awaitable[dict[str, Any]], state: Path) -> dict[str, Any]:
    try:
        found = await work
    except Exception as error:
        found = {"broken": "".join(traceback.format_exception(error))[-6000:]}
    print(json.dumps({**each, **found}), flush=True)
    end_all(state)
    shutil.rmtree(state)
    return found


async def full(mount: Path, folder: Path) -> None:
    run, bundle = await bundle_in(folder)
    disk = Tmpfs(mount)
    for step in CHOSEN:
        await tell({"step": step}, full_from(step, disk, run, bundle), mount / (step or "before"))


async def calls(place: Path, folder: Path, error: int, *chosen: int) -> None:
    run, bundle = await bundle_in(folder)
    faults = Faults(folder, place)
    for skip in chosen or itertools.count():
        state = place / str(skip)
        found = await tell({"skip": skip}, call_fails(skip, error, faults, state, run, bundle), state)
        if not found.get("call"):
            break  # there are no more


if __name__ == "__main__":
    experiment, place, folder, *numbers = sys.argv[1:]
    if experiment == "full":
        asyncio.run(full(Path(place), Path(folder)))
    else:
        asyncio.run(calls(Path(place), Path(folder), *map(int, numbers)))
