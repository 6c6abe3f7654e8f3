"""A host application for the crash tests: it embeds a supervisor, and is there to be killed.

``python host.py STATE_DIR MODE`` answers one JSON object a line for each one it is given:
``{"id", "op", …}`` -> ``{"id", "ok": …}`` or ``{"id", "error": {…}}``.  Operations run side by
side.  MODE is ``exec`` or ``zygote`` (how workers come to be), ``one`` (as zygote, with a single slot),
or ``recover``: then it does that, and leaves.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from typing import Any

from durable_supervisor import Command, Limits, Supervisor, SupervisorError
from durable_supervisor.process.identity import read_stat
from durable_supervisor.process.pulse import Pulse
from durable_supervisor.process.tree import children_of


def say(**document: Any) -> None:
    os.write(1, json.dumps(document).encode() + b"\n")


class Host:
    """The verbs of one supervisor, by name."""

    def __init__(self, sup: Supervisor) -> None:
        self.sup = sup
        self.helpers: list[int] = []

    async def start(self, argv: list[str], request_id: str, **options: Any) -> dict[str, Any]:
        limits = Limits(**options.pop("limits", {}))
        names = ("completion", "lifetime", "owner", "queue", "priority")
        chosen = {name: options.pop(name) for name in names if name in options}
        if "stdin" in options:
            options["stdin"] = "open" if options["stdin"] == "open" else options["stdin"].encode()
        command = Command(argv=argv, **options)
        return (await self.sup.start(command, request_id=request_id, limits=limits, **chosen)).to_dict()

    async def wait(self, run: str, timeout: float = 60) -> dict[str, Any]:
        return (await self.sup.wait(run, timeout=timeout)).to_dict()

    async def inspect(self, run: str) -> dict[str, Any]:
        return (await self.sup.inspect(run)).to_dict()

    async def stop(self, run: str, grace: float | None = None) -> dict[str, Any]:
        return (await self.sup.stop(run, grace=grace)).to_dict()

    async def write_stdin(self, run: str, text: str) -> dict[str, Any]:
        return (await self.sup.write_stdin(run, text.encode())).to_dict()

    async def resolve(self, run: str, action: str) -> dict[str, Any]:
        return (await self.sup.resolve(run, action)).to_dict()

    async def reconcile(self) -> dict[str, Any]:
        return (await self.sup.reconcile()).to_dict()

    async def gc(self) -> dict[str, Any]:
        return (await self.sup.gc(keep=0, apply=True)).to_dict()

    async def import_(self, bundle: str) -> dict[str, Any]:
        return (await self.sup.import_(bundle)).to_dict()

    async def events(self, run: str, after: int = 0, limit: int = 1000) -> dict[str, Any]:
        page = await self.sup.events(run, after=after, limit=limit)
        return {"events": [event.to_dict() for event in page.events], "next_after": page.next_after}

    async def fork(self) -> int:
        """A helper that lives on after the host, with everything a fork copies."""
        self.helpers.append(fork_helper())
        return self.helpers[-1]

    async def fork_all_the_time(self, count: int) -> list[int]:
        """Helpers forked from another thread, at whatever moment the starts happen to be in."""
        made: list[int] = []

        def work() -> None:
            for _ in range(count):
                made.append(fork_helper())
                time.sleep(0.001)

        thread = threading.Thread(target=work)
        thread.start()
        await asyncio.to_thread(thread.join)
        return made

    async def next_log_there(self) -> bool:
        """May a start use it?"""
        return self.sup._dispatcher._next_log.is_there

    async def stop_free_workers(self) -> None:
        """From now on one stands still just before its next run is sent to it."""

        def stop_just_after_the_look(pulse: Pulse) -> bool:
            os.kill(pulse.pid, signal.SIGSTOP)
            return False

        Pulse.stands_still = stop_just_after_the_look  # type: ignore[method-assign, assignment]

    async def figures(self) -> dict[str, int]:
        """How many descriptors and dead children this process has."""
        children = [read_stat(pid) for pid in children_of(os.getpid())]
        zombies = sum(stat is not None and stat.dead for stat in children)
        return {"descriptors": len(os.listdir("/proc/self/fd")), "zombies": zombies}

    async def start_many(self, count: int, argv: list[str], prefix: str = "many") -> dict[str, Any]:
        """One after the other; how they ended, counted."""
        ends: dict[str, int] = {}
        for index in range(count):
            run = await self.sup.start(Command(argv=argv), request_id=f"{prefix}-{index}")
            seen = await self.sup.wait(run.id, timeout=60)
            outcome = seen.outcome
            word = f"{seen.state.value}:{outcome and outcome.kind.value}:{outcome and outcome.code}"
            ends[word] = ends.get(word, 0) + 1
        return ends


def fork_helper() -> int:
    pid = os.fork()
    if pid == 0:
        for fd in (0, 1, 2):
            os.close(fd)
        time.sleep(60)
        os._exit(0)
    return pid


async def answer(host: Host, request: dict[str, Any]) -> None:
    number, op = request.pop("id"), request.pop("op")
    try:
        say(id=number, ok=await getattr(host, op)(**request))
    except SupervisorError as error:
        say(id=number, error=error.to_dict())
    except Exception as error:
        say(id=number, error={"code": "BUG", "message": repr(error)})


async def serve(state_dir: str, zygote: bool | None, slots: int | None) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    try:
        async with Supervisor.open(state_dir, zygote=zygote, max_concurrent_runs=slots) as sup:
            say(id=0, ok="open")
            host, tasks = Host(sup), set()
            while line := await reader.readline():
                task = asyncio.create_task(answer(host, json.loads(line)))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            if tasks:
                await asyncio.wait(tasks)
    except SupervisorError as error:
        say(id=0, error=error.to_dict())


async def recover(state_dir: str) -> None:
    try:
        say(id=0, ok=await Supervisor.recover(state_dir))
    except SupervisorError as error:
        say(id=0, error=error.to_dict())


if __name__ == "__main__":
    mode = sys.argv[2]
    zygote = {"exec": False, "zygote": True}.get(mode)
    slots = 1 if mode == "one" else None
    asyncio.run(recover(sys.argv[1]) if mode == "recover" else serve(sys.argv[1], zygote, slots))
