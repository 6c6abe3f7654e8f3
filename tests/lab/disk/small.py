"""On a small disk, in a mount namespace of its own: it is full, or read-only, from a named step on.

``python small.py MOUNT PLAN`` prints one JSON object a line for each experiment: a failpoint, who stands
still there, and what happens to the disk and to them.  A broken guarantee is its ``broken``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

from durable_supervisor import Observer, Supervisor, SupervisorError
from durable_supervisor.process.identity import read_stat
from durable_supervisor.process.signals import signal_ticks
from tests.crash.harness import Host, Ledger, Refused, end_all
from tests.crash.test_matrix import HOST, WORKER, Scenario, make_program, stop_it, stopped
from tests.crash.world import World, check_guarantees, no_guess
from tests.support import PATIENCE, eventually

EVERY = ("absent", "not_started", "finished", "unknown")


class SmallDisk:
    """The mounted file system; ``full`` and ``read_only`` are undone by `good`."""

    def __init__(self, mount: Path) -> None:
        self.mount = mount
        self._filler = mount / "filler"

    def full(self) -> None:
        with open(self._filler, "ab", buffering=0) as file:
            for size in (1 << 20, 4096, 1):
                try:
                    while file.write(bytes(size)) == size:
                        pass
                except OSError:
                    continue

    def read_only(self) -> None:
        """Possible once nobody has a file open for writing."""
        self._remount("ro")

    def good(self) -> None:
        self._remount("rw")
        self._filler.unlink(missing_ok=True)

    def _remount(self, mode: str) -> None:
        def done() -> bool:
            command = ["mount", "-o", f"remount,{mode}", str(self.mount)]
            return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0

        eventually(done, message=f"the disk cannot be made {mode}")


async def experiment(disk: SmallDisk, folder: Path, each: dict[str, Any]) -> dict[str, Any]:
    """``name``: the failpoint; ``kill``: who stands there dies, or goes on; ``bad``: the disk from then."""
    world = World(disk.mount / folder.name, Ledger(folder))
    world.state_dir.mkdir(mode=0o700)
    scenario = scenario_of(each["name"])
    scenario.request(world)
    told: dict[str, Any] = {}
    try:
        with world.host(f"{each['name']}=pause", "zygote" if "zygote" in each["name"] else "exec") as host:
            stands = await asyncio.to_thread(reach, world, host, scenario, each["name"])
            if each["bad"] == "full":
                disk.full()
            go_on(world, host, stands, kill=each["kill"])
        if each["bad"] == "read_only":
            end_all(world.state_dir)
            disk.read_only()
        if scenario.missing:
            make_program(world.argv[0])
        world.ledger.open_gate()
        told["while bad"] = await opened(world)
        disk.good()
        if scenario.stop and each["name"] in HOST and each["bad"] == "full":
            await stop_it(world)  # the worker may not have heard of it
        found = await check_guarantees(world, EVERY, kill=scenario.stop)
        told["settled"] = "absent" if found is None else found.state.value
        if not each["kill"] and found is not None:
            assert told["settled"] != "unknown", "nobody was killed but the owner"
    except Exception as error:
        told["broken"] = "".join(traceback.format_exception(error))[-12000:]
    finally:
        disk.good()
        end_all(world.state_dir)
    shutil.rmtree(world.state_dir)
    return told


def scenario_of(name: str) -> Scenario:
    return (WORKER.get(name) or HOST[name])[0]


def reach(world: World, host: Host, scenario: Scenario, name: str) -> list[tuple[int, int]]:
    """Let it come to the point; who stands still there."""

    def found() -> list[tuple[int, int]]:
        stat = read_stat(host.pid)
        if stat is not None and stat.state == "T":
            return [(stat.pid, stat.start_ticks)]
        return stopped(world.state_dir)

    if name.startswith("open."):
        return eventually(found)
    host.opened()
    number = host.tell("start", argv=world.argv, request_id=world.request_id, **scenario.options)
    if scenario.stop:
        run = host.answer(number)["run_id"]
        eventually(lambda: world.ledger.begun(world.request_id))
        host.tell("stop", run=run)
    return eventually(found, PATIENCE, f"{name} was not reached")


def go_on(world: World, host: Host, stands: list[tuple[int, int]], *, kill: bool) -> None:
    """With ``kill`` who stands there and the owner die; else the owner alone, after it has tried to go on."""
    for pid, ticks in stands:
        signal_ticks(pid, ticks, signal.SIGKILL if kill else signal.SIGCONT)
    if not kill:
        world.ledger.open_gate()
        with contextlib.suppress(Refused):
            host.opened()  # or it was refused for want of space, and has left
            host.ask("reconcile")
    host.kill()


async def opened(world: World) -> list[str]:
    """Opening and reading while the disk is bad: an answer or a typed refusal, and no false word."""
    said = []
    for face in (Supervisor, Observer):
        try:
            async with face.open(world.state_dir) as seen:
                for run in (await seen.list()).runs:
                    view = await seen.inspect(run.id)
                    no_guess(world, view, 5)
                    said.append(view.state.value)
        except SupervisorError as error:
            said.append(error.code.value)
    return said


async def main(mount: Path, plan: list[dict[str, Any]]) -> None:
    disk = SmallDisk(mount)
    for number, each in enumerate(plan):
        folder = mount.parent / f"ledger-{number}"
        folder.mkdir()
        told = await experiment(disk, folder, each)
        print(json.dumps({**each, **told}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), json.loads(sys.argv[2])))
