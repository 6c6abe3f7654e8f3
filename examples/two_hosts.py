"""Two applications share one state directory, and its owner is killed: ``python examples/two_hosts.py``.

1. The first application owns the directory, and starts a program that counts.
2. The second one finds it owned, asks for the same work (nothing is started twice), and reads along.
3. The first one is killed with SIGKILL.  The second one reads on, and owns the directory now.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile

import durable_supervisor
from durable_supervisor import Command

COUNT = Command(argv=["sh", "-c", "for n in 1 2 3 4 5 6 7 8 9; do echo $n; sleep 0.3; done"], cwd="/")


async def first(state_dir: str) -> None:
    """Runs in a process of its own and never gets to the end of this function."""
    async with durable_supervisor.open(state_dir) as host:
        run = await host.start(COUNT, request_id="count")
        print(f"first, pid {os.getpid()}: {host.role}, started {run.id}", flush=True)
        await asyncio.Event().wait()


async def second(state_dir: str) -> None:
    """Starts the first, kills it half-way, and sees all of what it began."""
    other = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "first", state_dir, stdout=asyncio.subprocess.PIPE
    )
    assert other.stdout is not None
    print((await other.stdout.readline()).decode().rstrip())
    async with durable_supervisor.open(state_dir) as host:
        run = await host.start(COUNT, request_id="count")
        print(f"second, pid {os.getpid()}: {host.role}, found {run.id} ({run.admission})")
        async for event in host.follow(run.id):
            print(f"  event {event.seq:>2}  {event.kind:<18} {event.text.rstrip()}")
            if event.text == "4\n":
                other.send_signal(signal.SIGKILL)
                await other.wait()
                print("kill -9: the first application is gone")
        final = await host.wait(run.id)
        await host.reconcile()  # reading needed no owner; this does, and waits for the next one
        print(f"second: {host.role} now; the run {final.state.value}, {final.outcome}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["first"]:
        asyncio.run(first(sys.argv[2]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(second(os.path.join(folder, "state")))
