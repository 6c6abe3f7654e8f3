"""A million events while readers of every kind stand still: the writer goes on, only its log grows."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from durable_supervisor import Observer
from tests.cli.helpers import COMMAND, environment
from tests.lab.forms import FULL
from tests.lab.load.figures import MIB, descriptors, on_disk, resident, tell
from tests.server.http import raw
from tests.service.daemons import Service
from tests.support import eventually

EVENTS = 1_000_000 if FULL else 10_000
PATIENCE = 1500 if FULL else 60

pytestmark = pytest.mark.timeout(3600 if FULL else 240)

# In packet mode each write is read by itself (pipe(7)), and so becomes an event of its own.
PACKETS = """
import fcntl, os, sys, time
fcntl.fcntl(1, fcntl.F_SETFL, os.O_WRONLY | os.O_DIRECT)
sys.stdin.read(1)
longest, began = 0.0, time.monotonic()
for number in range(int(sys.argv[1])):
    before = time.monotonic()
    os.write(1, b"%d\\n" % number)
    longest = max(longest, time.monotonic() - before)
with open(sys.argv[2], "w") as book:
    book.write(f"{time.monotonic() - began:.1f} s, longest write {longest * 1000:.1f} ms")
"""


class Writer:
    """A run that waits for a word, and then writes its events as fast as it can.  ``book``: how it fared."""

    def __init__(self, service: Service, book: Path) -> None:
        self.book = book
        self._service = service
        command = {"argv": [sys.executable, "-c", PACKETS, str(EVENTS), str(book)], "stdin": "open"}
        status, form = service.ask("POST", "/v1/start", {"command": command})
        assert status == 201, form
        self.run = str(form["run_id"])

    def view(self) -> dict[str, Any]:
        return self._service.inspect(self.run)

    def write_all(self, most: Most | None = None) -> None:
        """``most`` looks now and then."""
        assert self._service.ask("POST", f"/v1/runs/{self.run}/write-stdin", content=b"\n")[0] == 200

        told = 0

        def is_over() -> bool:
            nonlocal told
            if most is not None:
                most.look()
            seen = self.view()
            if seen["head"] >= told + EVENTS // 5:
                told = seen["head"]
                print(f"{self.book.name}: {told} events so far", flush=True)
            return bool(seen["state"] == "finished")

        eventually(is_over, PATIENCE)


@dataclass
class Most:
    """What each process took beyond what it had at first; and the journal's -wal file, and the logs."""

    state_dir: Path
    pids: dict[str, int]
    grown: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._first = {name: (resident(pid), descriptors(pid)) for name, pid in self.pids.items()}
        self._disk = on_disk(self.state_dir / "runs")

    def look(self) -> None:
        for name, pid in self.pids.items():
            try:
                memory, files = resident(pid), descriptors(pid)
            except (FileNotFoundError, ProcessLookupError):
                continue  # a worker that has left
            self._note(f"{name}_mib", (memory - self._first[name][0]) / MIB)
            self._note(f"{name}_descriptors", files - self._first[name][1])
        self._note("wal_mib", (self.state_dir / "journal.db-wal").stat().st_size / MIB)
        self._note("bytes_per_event", (on_disk(self.state_dir / "runs") - self._disk) / EVENTS)

    def _note(self, name: str, value: float) -> None:
        self.grown[name] = max(value, self.grown.get(name, 0.0))


@contextmanager
def command_line(service: Service, run: str) -> Iterator[subprocess.Popen[bytes]]:
    """``events --follow``, stopped in the middle, into a pipe that nobody reads."""
    words = [*COMMAND, "events", run, "--follow", "--json"]
    process = subprocess.Popen(words, env=environment(service.state_dir), stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["seq"] == 1
        process.send_signal(signal.SIGSTOP)
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def socket_client(service: Service, run: str) -> Iterator[None]:
    """Asks for everything, and takes nothing."""
    with closing(raw(service.socket)) as connection:
        lines = (f"GET /v1/runs/{run}/events HTTP/1.1", "Host: local", "Accept: text/event-stream", "", "")
        connection.sendall("\r\n".join(lines).encode())
        assert connection.recv(12) == b"HTTP/1.1 200"
        yield


@contextmanager
def journal_reader(state_dir: Path) -> Iterator[None]:
    """A transaction that is never ended: behind it the -wal file cannot begin anew."""
    with closing(sqlite3.connect(f"file:{state_dir}/journal.db?mode=ro", uri=True)) as connection:
        connection.execute("BEGIN")
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (2,)
        yield


async def test_a_million_events_and_readers_that_stand_still(state_dir: Path, tmp_path: Path) -> None:
    with ExitStack() as stack:
        service = stack.enter_context(Service(state_dir))
        alone = Writer(service, tmp_path / "alone")
        alone.write_all()
        watched = Writer(service, tmp_path / "watched")
        stack.enter_context(journal_reader(state_dir))
        stack.enter_context(socket_client(service, watched.run))
        stopped = stack.enter_context(command_line(service, watched.run))
        async with Observer.open(state_dir) as reader:
            follower = reader.follow(watched.run)
            assert (await anext(follower)).seq == 1
            worker = int(watched.view()["worker"]["pid"])
            pids = {"service": service.process.pid, "worker": worker, "stopped": stopped.pid}
            most = Most(state_dir, pids)
            await asyncio.to_thread(watched.write_all, most)
            tell(f"{EVENTS} events, and readers that stand still", most.grown)
            print(f"alone: {alone.book.read_text()}; watched: {watched.book.read_text()}")
            before = resident()
            output, seq = bytearray(), 1
            async for event in follower:  # it is still where it stood
                assert event.seq == seq + 1
                seq = event.seq
                output += event.data
            print(f"the follower's memory, while it catches up: {(resident() - before) / MIB:.1f} MiB")
        check_whole(watched.view(), seq, bytes(output))
    bounded(most.grown)


def check_whole(view: dict[str, Any], last: int, output: bytes) -> None:
    """Nothing was dropped or held up for anybody, and all of it is there."""
    assert view["outcome"]["code"] == 0
    assert view["head"] == last > EVENTS
    assert output == b"".join(b"%d\n" % number for number in range(EVENTS))
    stdout = view["receipt"]["output"]["stdout"]
    assert (stdout["bytes"], stdout["dropped"], stdout["complete"]) == (len(output), 0, True)


def bounded(grown: dict[str, float]) -> None:
    assert grown["service_mib"] < 64
    assert grown["worker_mib"] < 32
    assert grown["stopped_mib"] < 1
    assert all(value <= 8 for name, value in grown.items() if name.endswith("_descriptors"))
    assert grown["wal_mib"] < 4
    assert grown["bytes_per_event"] < 200
