"""A few short lives in a new directory, every change to the disk written down.

``python recorded.py FOLDER`` is started with the shim under it, tracing.  What a caller has been told is
written to a file beside the directory, so that the trace says when that was.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from durable_supervisor import Command, Limits, Observer, Supervisor
from durable_supervisor.model.events import Kind
from tests.crash.harness import Ledger
from tests.lab.disk.faults import Faults, Role

# Long enough for a background sync in the middle, loud enough for several segments.
SCRIPTS = {
    "quick": "echo out; echo err >&2",
    "slow": "for i in 1 2 3 4; do head -c 3000 /dev/zero | tr '\\0' x; sleep 0.4; done",
    "loud": "head -c 200000 /dev/zero | tr '\\0' y; sleep 0.1; echo end",
}
CODE = 5


async def life(folder: Path) -> None:
    faults = Faults(folder, folder / "disk", traced=True)
    sys.executable = str(faults.interpreter(folder, Role.WORKER))
    ledger = Ledger(folder)
    marks = os.open(folder / "disk" / "marks", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)

    async def follow(reader: Observer, name: str, run: str) -> None:
        async for event in reader.follow(run):
            if event.kind == Kind.RUN_FINISHED:
                os.write(marks, f"finished {name} {run}\n".encode())

    async def one(sup: Supervisor, reader: Observer, name: str) -> None:
        command = Command(argv=ledger.program(name, SCRIPTS[name], CODE))
        limits = Limits(max_stdout_bytes=64_000)
        run = await sup.start(command, request_id=name, limits=limits)
        os.write(marks, f"admitted {name} {run.id}\n".encode())
        following = asyncio.create_task(follow(reader, name, run.id))
        view = await sup.wait(run.id, timeout=30)
        assert view.outcome is not None
        assert view.outcome.code == CODE
        os.write(marks, f"finished {name} {run.id}\n".encode())
        await following

    state = folder / "disk" / "state"
    async with Supervisor.open(state) as sup, Observer.open(state) as reader:
        await asyncio.gather(*(one(sup, reader, name) for name in SCRIPTS))
    async with Supervisor.open(state) as sup:
        await sup.reconcile()


if __name__ == "__main__":
    asyncio.run(life(Path(sys.argv[1])))
