"""A disk that becomes read-only in the middle of everything, in a mount namespace of its own.

``python read_only.py covered MOUNT FOLDER``: the directory is under a mount that is made read-only, and
writable again: what was opened before can be written meanwhile, nothing can be made.
``python read_only.py aborted MOUNT FOLDER IMAGE``: an ext4 that has met an error, as ``errors=remount-ro``
leaves it: nothing can be written, until it is repaired and mounted anew.

Both try first that the kernel makes no disk read-only (``mount -o remount,ro``) which is open for writing.
FOLDER has the ledger.  Prints one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from durable_supervisor import Event, Observer, RunState, Supervisor, SupervisorError
from durable_supervisor.model.events import Kind
from tests.crash.harness import Ledger, end_all
from tests.crash.world import World, check_guarantees, gapless, no_guess
from tests.support import PATIENCE, eventually_async

CODE = 5
PIECE = 100_000  # bytes of each step of the chatter
CHATTER = (
    'echo ready; n=0; while [ ! -e "$3" ] && [ $n -lt 100000 ]; do head -c 100000 /dev/zero | tr "\\0" x; '
    'n=$((n+1)); echo $n > "$2.count"; done'
)
STEPS = 60  # of the chatter: more than pipe, memory and a segment hold


class Disk:
    """The mounted file system with the state directory."""

    def __init__(self, mount: Path, folder: Path, image: Path | None) -> None:
        self.mount = mount
        self.image = image
        self.state_dir = mount / "state"
        self.ledger = Ledger(folder)
        self.count = Path(f"{self.ledger.path}.count")
        self._steps = 0

    def mounted(self) -> None:
        if self.image is None:
            run("mount", "-t", "tmpfs", "-o", "size=128m", "none", str(self.mount))
        else:
            run("mount", "-o", "loop,errors=remount-ro", str(self.image), str(self.mount))

    def refuses(self) -> bool:
        """The kernel takes no disk away from those who write to it."""
        asked = ["mount", "-o", "remount,ro", str(self.mount)]
        return subprocess.run(asked, stderr=subprocess.DEVNULL, check=False).returncode != 0

    def cover(self) -> None:
        run("mount", "--bind", str(self.state_dir), str(self.state_dir))
        run("mount", "-o", "remount,bind,ro", str(self.state_dir))

    def uncover(self) -> None:
        run("mount", "-o", "remount,bind,rw", str(self.state_dir))

    def abort(self) -> None:
        run("mount", "-o", "remount,abort", str(self.mount))

    def repair(self) -> None:
        """Once nobody is left who has a file open on it."""
        run("umount", str(self.mount))
        repaired = subprocess.run(["e2fsck", "-fy", str(self.image)], capture_output=True, check=False)
        assert repaired.returncode in (0, 1), repaired.stdout
        self.mounted()

    def chatter(self, request_id: str) -> World:
        argv = self.ledger.program(request_id, CHATTER, CODE)
        return World(self.state_dir, self.ledger, argv, request_id=request_id)

    def steps(self) -> int:
        """Those that the chatter has counted.  Its file is empty for a moment, each time it is written."""
        with suppress(FileNotFoundError):
            self._steps = int(self.count.read_text() or self._steps)
        return self._steps

    async def goes_on(self) -> None:
        """The chatter is not held up, whatever becomes of what it prints."""
        wanted = self.steps() + STEPS

        async def done() -> bool:
            return self.steps() >= wanted

        await eventually_async(done, message="the program is blocked")


def run(*command: str) -> None:
    subprocess.run(command, check=True)


async def refusal(work: Callable[[], Awaitable[Any]]) -> str:
    """A typed refusal by its code, or what came of it."""
    try:
        await work()
    except SupervisorError as error:
        return error.code.value
    return "done"


async def covered(disk: Disk) -> dict[str, Any]:
    chatter, late = disk.chatter("r-1"), disk.chatter("r-2")
    async with Supervisor.open(disk.state_dir) as sup:
        started = await chatter.send(sup)
        await disk.goes_on()
        assert disk.refuses()
        disk.cover()
        await disk.goes_on()
        told: dict[str, Any] = {"start": await refusal(lambda: late.send(sup))}
        await check_running(sup, started.id)
        async with Observer.open(disk.state_dir) as other:
            await check_running(other, started.id)
        told["open"] = await refusal(lambda: reopened(disk))
        await disk.goes_on()
        disk.uncover()
        await disk.goes_on()
        disk.ledger.open_gate()
        seen = await sup.wait(started.id, timeout=PATIENCE)
        no_guess(chatter, seen, CODE)
        assert seen.state is RunState.FINISHED
        told |= counted(await gapless(sup, started.id), disk)
    for world in (chatter, late):
        found = await check_guarantees(world, ["finished", "absent", "not_started"])
        told[world.request_id] = "absent" if found is None else found.state.value
    return told


async def reopened(disk: Disk) -> None:
    """Somebody else who wants to own the directory."""
    async with Supervisor.open(disk.state_dir, wait=0):
        pass


async def check_running(sup: Observer, run_id: str) -> None:
    seen = await sup.inspect(run_id)
    assert seen.state is RunState.RUNNING, (seen.state, seen.reason)
    assert (await sup.events(run_id)).events


def counted(events: list[Event], disk: Disk) -> dict[str, Any]:
    """Every byte that the program wrote is there, or told as dropped."""
    kept = sum(len(event.data) for event in events if event.kind == Kind.OUTPUT)
    told = [event.kind for event in events if event.kind in (Kind.OUTPUT, Kind.OUTPUT_DROPPED)]
    assert told[-1] == Kind.OUTPUT, "what came once the disk was good again is kept"
    drops = [event.detail for event in events if event.kind == Kind.OUTPUT_DROPPED]
    dropped = sum(int(str(drop["bytes"])) for drop in drops)
    written = len("ready\n") + PIECE * disk.steps()
    assert kept + dropped == written, (kept, dropped, written)
    return {"written": written, "dropped": dropped, "why": sorted({str(drop["reason"]) for drop in drops})}


async def aborted(disk: Disk) -> dict[str, Any]:
    chatter, quiet, late = disk.chatter("r-1"), disk.chatter("r-2"), disk.chatter("r-3")
    gate = disk.ledger.path.with_name("quiet-gate")
    quiet.argv = [*disk.ledger.waiting("r-2", CODE)[:-1], str(gate)]
    async with Supervisor.open(disk.state_dir) as sup:
        first, second = await chatter.send(sup), await quiet.send(sup)
        await disk.goes_on()
        assert disk.refuses()
        disk.abort()
        await disk.goes_on()
        gate.touch()
        await eventually_async(is_over(disk, "r-2"))
        told: dict[str, Any] = {"start": await refusal(lambda: late.send(sup))}
        await disk.goes_on()
        for world, started in ((chatter, first), (quiet, second)):
            told[f"{world.request_id} meanwhile"] = await meanwhile(sup, world, started.id)
    end_all(disk.state_dir)
    disk.repair()
    for world in (chatter, quiet, late):
        found = await check_guarantees(world, ["finished", "unknown", "absent", "not_started"], kill=True)
        told[world.request_id] = "absent" if found is None else found.state.value
        assert found is not None or world is late, "it was accepted, and is forgotten"
    return told


def is_over(disk: Disk, request_id: str) -> Callable[[], Awaitable[bool]]:
    async def over() -> bool:
        return disk.ledger.ended(request_id) is not None

    return over


async def meanwhile(sup: Supervisor, world: World, run_id: str) -> str:
    """What is told of a run whose disk takes nothing more: what is known, or a typed refusal."""
    try:
        seen = await sup.inspect(run_id)
    except SupervisorError as error:
        return error.code.value
    no_guess(world, seen, CODE)
    return seen.state.value


async def main(experiment: str, mount: Path, folder: Path, image: Path | None) -> None:
    disk = Disk(mount, folder, image)
    disk.mounted()
    disk.state_dir.mkdir(mode=0o700)
    try:
        told = await {"covered": covered, "aborted": aborted}[experiment](disk)
    finally:
        end_all(disk.state_dir)
    print(json.dumps(told))


if __name__ == "__main__":
    words = sys.argv[1:]
    asyncio.run(main(words[0], Path(words[1]), Path(words[2]), Path(words[3]) if words[3:] else None))
