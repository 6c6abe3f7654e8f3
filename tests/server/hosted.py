"""A service in a process of its own, for clients that block and for ends that are sudden."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support import PATIENCE, reap_state_dir

ROOT = Path(__file__).resolve().parents[2]

_SERVICE = """
import asyncio, sys
from durable_supervisor import Supervisor
from durable_supervisor.server.server import Server

async def main():
    async with Supervisor.open(sys.argv[1]) as sup:
        server = Server(sup)
        await server.start()
        print(server.path, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        await server.close(drain=1)

asyncio.run(main())
"""


@contextmanager
def hosted(folder: Path, **env: str) -> Iterator[str]:
    """Serve ``folder``/state until the end of the block; the path of the socket."""
    state = folder / "state"
    state.mkdir(mode=0o700)
    with open(folder / "service.log", "wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", _SERVICE, str(state)],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert process.stdout is not None
    try:
        path = process.stdout.readline().strip()
        assert path, (folder / "service.log").read_text()
        yield path
        assert process.poll() is None, (folder / "service.log").read_text()
        assert (folder / "service.log").read_text() == ""
    finally:
        process.communicate(timeout=PATIENCE)
        reap_state_dir(state)
