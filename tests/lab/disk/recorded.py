"""A few short lives in a new directory, every change to the disk written down.

``python recorded.py FOLDER OWNERS`` is started with the shim under it, tracing.  What a caller has been told
is written to a file beside the directory, so that the trace says when that was.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import nullcontext
from pathlib import Path

from durable_supervisor import Command, Limits, Observer, Supervisor
from durable_supervisor.model.events import Kind
from durable_supervisor.model.request import Queueing, StartRequest
from durable_supervisor.supervisor.start.passing import start
from durable_supervisor.supervisor.state.state_dir import locate
from tests.crash.harness import Ledger
from tests.lab.disk.faults import Faults, Role
from tests.support import PATIENCE, has_next_log

# Long enough for a background sync in the middle, loud enough for several segments.
SCRIPTS = {
    "quick": "echo out; echo err >&2",
    "slow": "for i in 1 2 3 4; do head -c 3000 /dev/zero | tr '\\0' x; sleep 0.4; done",
    "loud": "head -c 200000 /dev/zero | tr '\\0' y; sleep 0.1; echo end",
}
# Each comes alone, and so takes the log that was made ahead behind the last one.
SCRIPTS |= (LONE := {"lone": "echo out", "next": "echo out; sleep 0.1; echo err >&2"})
CODE = 5
LIMITS = Limits(max_stdout_bytes=64_000)


def commands(folder: Path) -> None:
    """Each start has an owner of its own, as the command line is one."""
    ledger, marks = begin(folder)
    place = locate(folder / "disk" / "state")
    for name in SCRIPTS:
        command = Command(argv=ledger.program(name, SCRIPTS[name], CODE))
        request = StartRequest(command=command, request_id=name, limits=LIMITS)
        run = start(place, request, Queueing(), None, whole=nullcontext(), meanwhile=_nothing, tell=_nothing)
        assert run is not None
        os.write(marks, f"admitted {name} {run.id}\n".encode())
    asyncio.run(_until_finished(place.path, marks))


async def _until_finished(state_dir: str, marks: int) -> None:
    async with Observer.open(state_dir) as reader:
        for view in (await reader.list()).runs:
            await reader.wait(view.id, timeout=PATIENCE)
            os.write(marks, f"finished {view.request_id} {view.id}\n".encode())


def _nothing() -> None: ...


def begin(folder: Path) -> tuple[Ledger, int]:
    """The programs' ledger, and where to write what callers are told."""
    faults = Faults(folder, folder / "disk", traced=True)
    sys.executable = str(faults.interpreter(folder, Role.WORKER))
    marks = os.open(folder / "disk" / "marks", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
    return Ledger(folder), marks


async def life(folder: Path) -> None:
    """One owner for all, which starts most of them at once."""
    ledger, marks = begin(folder)

    async def follow(reader: Observer, name: str, run: str) -> None:
        async for event in reader.follow(run):
            if event.kind == Kind.RUN_FINISHED:
                os.write(marks, f"finished {name} {run}\n".encode())

    async def one(sup: Supervisor, reader: Observer, name: str) -> None:
        command = Command(argv=ledger.program(name, SCRIPTS[name], CODE))
        run = await sup.start(command, request_id=name, limits=LIMITS)
        os.write(marks, f"admitted {name} {run.id}\n".encode())
        following = asyncio.create_task(follow(reader, name, run.id))
        view = await sup.wait(run.id, timeout=PATIENCE)
        assert view.outcome is not None
        assert view.outcome.code == CODE
        os.write(marks, f"finished {name} {run.id}\n".encode())
        await following

    state = folder / "disk" / "state"
    async with Supervisor.open(state) as sup, Observer.open(state) as reader:
        await asyncio.gather(*(one(sup, reader, name) for name in SCRIPTS if name not in LONE))
        for name in LONE:
            await has_next_log(sup)
            await one(sup, reader, name)
    async with Supervisor.open(state) as sup:
        await sup.reconcile()


if __name__ == "__main__":
    if sys.argv[2] == "one":
        asyncio.run(life(Path(sys.argv[1])))
    else:
        commands(Path(sys.argv[1]))
