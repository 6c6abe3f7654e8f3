"""The processes that use the product: forked by the driver, told what to do line by line, there to be killed.

Each role has the same verbs.  ``owner`` embeds a supervisor, ``session`` shares the directory,
``client`` asks over the socket, ``observer`` reads and controls with nobody's help.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import importlib
import json
import os
import pkgutil
import socket
import sys
from collections.abc import Callable
from typing import Any

import durable_supervisor
from durable_supervisor import AsyncClient, Command, Limits, Observer, Policy, Supervisor, SupervisorError
from durable_supervisor.model.events import Event
from durable_supervisor.model.states import JUDGED_STATES, OPEN_STATES
from durable_supervisor.model.terminal import Terminal
from durable_supervisor.model.view import RunView
from durable_supervisor.process.identity import read_stat
from durable_supervisor.process.tree import children_of
from tests.support import is_next_log

SLOTS: dict[str, Any] = {"max_concurrent_runs": 12, "max_queued_runs": 8}
OPENING: dict[str, Callable[[str], Any]] = {
    "owner": lambda state: Supervisor.open(state, wait=3, **SLOTS),
    "session": lambda state: durable_supervisor.open(state, wait=3, **SLOTS),
    "client": lambda state: AsyncClient.connect(state, reconnect=3),
    "observer": Observer.open,
}


class Actor:
    """The verbs of whatever was opened, as the driver names them; answers are plain documents."""

    def __init__(self, verbs: Any, folder: str) -> None:
        self._verbs = verbs
        self._folder = folder

    async def start(self, argv: list[str], request_id: str, **form: Any) -> dict[str, Any]:
        limits = Limits(**form.pop("limits"))
        names = ("lifetime", "queue", "priority")
        chosen: dict[str, Any] = {name: form.pop(name) for name in names if name in form}
        if "network" in form:
            chosen["policy"] = Policy(network=form.pop("network"))
        if "pty" in form:
            form["pty"] = Terminal(columns=form["pty"][0], rows=form["pty"][1])
        command = Command(argv=argv, **form)
        labels = {"lab": "yes"}
        run = await self._verbs.start(command, request_id=request_id, limits=limits, labels=labels, **chosen)
        return dict(run.to_dict())

    conflict = start

    async def settle(self) -> Any:
        """Stop what is open, end what is left of the lost, until all is settled; which runs were not."""
        found: set[str] = set()
        while True:
            await self._verbs.reconcile()
            page = await self._verbs.list(limit=1000, states=JUDGED_STATES)
            if not page.runs:
                return sorted(found)
            found |= {run.id for run in page.runs}
            await asyncio.gather(*(self._settle(run) for run in page.runs))
            await asyncio.sleep(0.02)

    async def _settle(self, seen: RunView) -> None:
        try:
            if seen.state in OPEN_STATES:
                await self._verbs.stop(seen.id, grace=0.2, timeout=5)
            else:
                full = await self._verbs.inspect(seen.id)
                await self._verbs.resolve(seen.id, "kill" if full.program else "accept")
        except SupervisorError as error:
            if error.code.value not in ("NOT_RUNNING", "NOT_CONFIRMED", "NOT_RESOLVABLE", "OUTCOME_UNKNOWN"):
                raise

    async def inspect(self, run: str) -> Any:
        return (await self._verbs.inspect(run)).to_dict()

    async def wait(self, run: str, timeout: float) -> Any:
        return (await self._verbs.wait(run, timeout=timeout)).to_dict()

    async def stop(self, run: str, grace: float) -> Any:
        return (await self._verbs.stop(run, grace=grace, timeout=5)).to_dict()

    async def signal(self, run: str, signo: str, target: str) -> Any:
        return (await self._verbs.signal(run, signo, target=target)).to_dict()

    async def write_stdin(self, run: str, text: str, eof: bool) -> Any:
        return (await self._verbs.write_stdin(run, text.encode(), eof=eof, timeout=3)).to_dict()

    async def resize(self, run: str, columns: int, rows: int) -> Any:
        return (await self._verbs.resize(run, columns, rows)).to_dict()

    async def acknowledge(self, run: str, stdout: int) -> Any:
        await self._verbs.acknowledge(run, stdout=stdout)

    async def resolve(self, run: str, action: str) -> Any:
        async with asyncio.timeout(10):
            return (await self._verbs.resolve(run, action)).to_dict()

    async def reconcile(self) -> Any:
        return (await self._verbs.reconcile()).to_dict()

    async def capabilities(self) -> Any:
        return (await self._verbs.capabilities()).to_dict()

    async def gc(self, older_than: float, apply: bool) -> Any:
        return (await self._verbs.gc(older_than=older_than, apply=apply)).to_dict()

    async def import_(self, bundle: str) -> Any:
        return (await self._verbs.import_(bundle)).to_dict()

    async def list(self, limit: int) -> Any:
        """Every run, in pages: newest first, each once."""
        before, found = None, []
        while True:
            page = await self._verbs.list(limit=limit, before=before)
            found += [{"serial": run.serial, **run.to_dict()} for run in page.runs]
            before = page.next_before
            if before is None:
                break
        serials = [run["serial"] for run in found]
        assert serials == sorted(set(serials), reverse=True), f"the list is out of order: {serials}"
        return found

    async def feed(self, after: int, limit: int) -> Any:
        entries = await self._verbs.feed(after=after, limit=limit)
        positions = [entry.position for entry in entries]
        assert positions == list(range(after + 1, after + 1 + len(positions))), f"holes: {positions}"
        return len(positions)

    async def pages(self, run: str, limit: int) -> Any:
        """All there is by now, from the beginning."""
        after, count = 0, 0
        while True:
            page = await self._verbs.events(run, after=after, limit=limit)
            for event in page.events:
                check_next(after, event)
                after, count = event.seq, count + 1
            if not page.events:
                assert page.next_after == after, "a page without events that moves on"
                return count

    async def follow(self, run: str, after: int, name: str) -> Any:
        """To the run's end, from a cursor; what was seen is kept in a file, line by line."""
        book = os.open(f"{self._folder}/{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            async for event in self._verbs.follow(run, after=after):
                check_next(after, event)
                after = event.seq
                os.write(book, json.dumps(mark(event)).encode() + b"\n")
        finally:
            os.close(book)
        return after

    async def attach(self, run: str, steal: bool) -> Any:
        """Take the lease, type a line, look at what comes, and leave."""
        async with self._verbs.attach(run) as viewer:
            has = await viewer.lease(steal=steal, timeout=2)
            if has:
                await viewer.write_stdin(b"typed\n", timeout=2)
            async for event in viewer:
                if event.seq > 6:
                    break
        return has

    async def figures(self) -> dict[str, Any]:
        """What this process holds: descriptors by what they are, and dead children."""
        descriptors = []
        for name in os.listdir("/proc/self/fd"):
            try:
                if not is_next_log(name):
                    descriptors.append(os.readlink(f"/proc/self/fd/{name}"))
            except FileNotFoundError:
                continue  # the one that the listing itself was made with
        children = [read_stat(pid) for pid in children_of(os.getpid())]
        zombies = [stat.pid for stat in children if stat is not None and stat.dead]
        return {"descriptors": sorted(descriptors), "zombies": zombies}


def check_next(after: int, event: Event) -> None:
    """Each seq is answered once: by its event, or by the range of what was dropped."""
    first = int(str(event.detail.get("first_seq", event.seq)))
    # A stretch that was compacted behind a reader's back begins before its cursor.
    dropped = event.kind == "output.dropped" and first <= after < event.seq
    assert first == after + 1 or dropped, (after, event)


def mark(event: Event) -> list[Any]:
    """An event in short: seq, kind, and a digest of all there is to it."""
    whole = json.dumps([event.detail, event.wall_ns // 1000], sort_keys=True).encode() + event.data
    return [event.seq, event.kind, hashlib.sha1(whole).hexdigest()[:12]]


async def perform(role: str, state: str, folder: str, end: socket.socket) -> None:
    """Open, and answer each line of the driver's until it closes its end."""
    end.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=end, limit=1 << 24)

    def say(**document: Any) -> None:
        writer.write(json.dumps(document).encode() + b"\n")

    try:
        async with OPENING[role](state) as verbs:
            say(id=0, ok="open")
            actor, tasks = Actor(verbs, folder), set()
            while line := await reader.readline():
                task = asyncio.create_task(_answer(actor, say, **json.loads(line)))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)
    except SupervisorError as error:
        say(id=0, error=error.to_dict())
    await writer.drain()
    writer.close()


async def _answer(actor: Actor, say: Callable[..., None], id: int, op: str, **arguments: Any) -> None:  # noqa: A002
    try:
        say(id=id, ok=await getattr(actor, op)(**arguments))
    except SupervisorError as error:
        say(id=id, error=error.to_dict())
    except TimeoutError:
        say(id=id, error={"code": "TIMEOUT", "message": ""})
    except Exception as error:
        say(id=id, error={"code": "BUG", "message": f"{op} {arguments}: {error!r}"})


def call(words: list[str], state: str) -> None:
    """The command line, in this process; leaves by itself."""
    from durable_supervisor.cli.main import main

    os.environ["DURABLE_SUPERVISOR_STATE_DIR"] = state
    sys.argv = ["durable-supervisor", *words]
    main()


def preload() -> None:
    """Have the whole product loaded before anybody is forked: a process then costs a few milliseconds.

    But for the worker's own, which is never forked from here, and what is run at its import.
    """
    skipped = ("worker", "testing", "__main__", "sandbox.probe")
    for module in pkgutil.walk_packages(durable_supervisor.__path__, "durable_supervisor."):
        if not any(f".{name}" in module.name for name in skipped):
            importlib.import_module(module.name)
    gc.freeze()  # the copies share what is there by now, and look for no garbage in it


def be(role: str, state: str, folder: str, end: socket.socket) -> None:
    """All of it, in this process."""
    asyncio.run(perform(role, state, folder, end))
