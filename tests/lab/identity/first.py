"""The first process of a pid namespace: it reaps nobody, unless told to, and says which pid comes next.

``python first.py SCENARIO FOLDER`` prints JSON objects, one a line, and goes on with each line of its stdin.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from durable_supervisor import RunView, Supervisor
from durable_supervisor.process.identity import read_stat
from tests.crash.harness import Host, Ledger
from tests.crash.world import World, check_guarantees, settle
from tests.support import eventually

LAST_PID = Path("/proc/sys/kernel/ns_last_pid")


def say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def heard() -> str:
    return sys.stdin.readline().strip()


def world_in(folder: Path, name: str) -> World:
    place = folder / name
    place.mkdir()
    (place / "state").mkdir(mode=0o700)
    world = World(place / "state", Ledger(place))
    world.argv = world.ledger.waiting(world.request_id)
    return world


def started(world: World) -> dict[str, Any]:
    """A run whose owner is gone at once; its view."""
    with world.host() as host:
        host.opened()
        run = host.start(world.argv, world.request_id)
        eventually(lambda: world.ledger.begun(world.request_id))
        view = eventually(lambda: _whole(host, run))
        host.kill()
    return view


def _whole(host: Host, run: str) -> dict[str, Any]:
    view: dict[str, Any] = host.ask("inspect", run=run)
    return view if view["worker"] and view["program"] else {}


def pids(view: dict[str, Any]) -> list[int]:
    return [view["worker"]["pid"], view["program"]["pid"]]


def killed(view: dict[str, Any]) -> None:
    """Worker and program are zombies now: nobody reaps them."""
    for pid in pids(view):
        os.kill(pid, signal.SIGKILL)
        eventually(lambda pid=pid: (stat := read_stat(pid)) is not None and stat.dead)  # type: ignore[misc]


def reaped() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        pass


def bystander(pid: int) -> subprocess.Popen[bytes]:
    """A process that has nothing to do with anything, under this pid."""
    for _ in range(200):
        reaped()  # a pid that still names a group is not given out
        LAST_PID.write_text(str(pid - 1))
        other = subprocess.Popen(["sleep", "600"])
        if other.pid == pid:
            return other
        other.kill()
        other.wait()
    raise AssertionError(f"pid {pid} is not to be had")


async def zombies(folder: Path) -> None:
    """What is dead and unreaped is dead: neither lives on, nor holds anything."""
    world = world_in(folder, "zombies")
    killed(started(world))
    found = await check_guarantees(world, ["unknown"])
    quick = world_in(folder, "quick")
    quick.argv = quick.ledger.program(quick.request_id, "sleep 0.2 & sleep 0.2")
    with quick.host() as host:
        host.opened()
        run = host.start(quick.argv, quick.request_id)
        host.kill()
    ended = await check_guarantees(quick, ["finished"])
    say(state=said(found), ended=said(ended), run=run)


def said(view: RunView | None) -> str:
    return "absent" if view is None else view.state.value


async def reuse(folder: Path) -> None:
    """Both pids name others now, who were there before anybody looked."""
    world = world_in(folder, "reuse")
    view = started(world)
    killed(view)
    others = [bystander(pid) for pid in pids(view)]
    async with Supervisor.open(world.state_dir) as sup:
        views = await settle(sup, view["run_id"], kill=True)
        receipt = await sup.stop(view["run_id"])
    found = await check_guarantees(world, ["unknown"], kill=True)
    alive = [other.poll() is None for other in others]
    for other in others:
        other.kill()
        other.wait()
    states = [one.state.value for one in views]
    say(state=said(found), states=states, alive=alive, confirmed=receipt.confirmed)


async def elsewhere(folder: Path) -> None:
    """A live run, for somebody outside to look at; then its worker dies; then everything does."""
    world = world_in(folder, "elsewhere")
    view = started(world)
    say(run=view["run_id"])
    heard()
    worker, _ = pids(view)
    os.kill(worker, signal.SIGKILL)
    eventually(lambda: (stat := read_stat(worker)) is not None and stat.dead)
    say(killed=worker)
    heard()


if __name__ == "__main__":
    asyncio.run({"zombies": zombies, "reuse": reuse, "elsewhere": elsewhere}[sys.argv[1]](Path(sys.argv[2])))
