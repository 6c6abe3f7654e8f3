"""An owner that stays needs no file of the package once it is open: an upgrade may take them away."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

OWNER = """
import asyncio, sys
from durable_supervisor import Command, Limits, Policy, RunState, Supervisor, Terminal

class Gone:
    "No module of ours is to be had any more."
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "durable_supervisor":
            raise ModuleNotFoundError(name)

async def main(state_dir):
    async with Supervisor.open(state_dir, zygote=False) as sup:
        sys.meta_path.insert(0, Gone())
        for command in (["cat"], ["sh", "-c", "echo out"]):
            run = await sup.start(Command(argv=command, stdin="open"))
            if command == ["cat"]:
                await sup.write_stdin(run.id, b"in", eof=True)
            assert [event.kind async for event in sup.follow(run.id)][-1] == "run.finished"
            assert (await sup.wait(run.id, timeout=30)).state is RunState.FINISHED
            assert (await sup.inspect(run.id)).head
            assert (await sup.events(run.id)).events
        confined = Command(argv=["true"], pty=Terminal())
        run = await sup.start(confined, policy=Policy(), limits=Limits(max_open_files=100))
        assert (await sup.wait(run.id, timeout=30)).state is RunState.FINISHED
        run = await sup.start(Command(argv=["sleep", "3132"]))
        async with sup.attach(run.id) as attached:
            await sup.signal(run.id, "CONT")
        assert (await sup.stop(run.id, grace=0)).state is RunState.FINISHED
        sys.executable = "/nonexistent/python"
        assert (await sup.start(Command(argv=["true"]))).reason == "no_worker"
        assert (await sup.gc(keep=0)).to_dict()
        assert (await sup.gc(keep=0, apply=True)).to_dict()
        await sup.reconcile()
        assert (await sup.list()).runs
        assert await sup.feed()
        await sup.shutdown()

asyncio.run(main(sys.argv[1]))
"""


def test_an_owner_that_stays_loads_nothing_later(state_dir: Path) -> None:
    done = subprocess.run([sys.executable, "-c", OWNER, str(state_dir)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
