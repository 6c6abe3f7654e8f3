"""What the reconcile tests share: real logs with real locks beside a real journal."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from durable_supervisor.journal import runs
from durable_supervisor.journal.connection import Journal
from durable_supervisor.journal.rows import Intent, RunRow
from durable_supervisor.model.digest import FIELDS
from durable_supervisor.model.events import Kind
from durable_supervisor.model.identity import ProcessIdentity
from durable_supervisor.model.states import Trigger
from durable_supervisor.process.clock import Clock, boot_id
from durable_supervisor.process.identity import read_identity, self_identity
from durable_supervisor.process.locks import try_lock
from durable_supervisor.reconcile.loop import Reconciler
from durable_supervisor.reconcile.observe import Place
from durable_supervisor.runlog.format import EVENT, SegmentHeader, encode_json, encode_record, salt_of
from durable_supervisor.runlog.paths import RunPaths, shard_of
from durable_supervisor.runlog.reader import LogReader
from tests.support import eventually

DIRECTORY = "dir-test"
OTHER_BOOT = "00000000-0000-0000-0000-000000000000"
RECEIPT: dict[str, object] = {
    "outcome": {"kind": "exited", "code": 7, "signal": None},
    "exit": {"code": 7, "signal": None},
    "cleanup_confirmed": True,
}
_ME = self_identity()
# Nobody had this pid at tick 1, so it is proven gone, whoever has it now.
GONE = ProcessIdentity(2**22 - 1, 1, boot_id(), _ME.pid_ns, _ME.time_ns, 1.0)

Events = Sequence[tuple[str, dict[str, object]]]


class Bench:
    """Runs that are put together by hand: a row, a log with the given events, a lock holder."""

    def __init__(self, state_dir: Path, journal: Journal) -> None:
        self.runs_dir = state_dir / "runs"
        self.journal = journal
        self.place = Place(str(self.runs_dir), DIRECTORY, boot_id())
        self.clock = Clock()
        self.serial = 0
        self.reconciler = Reconciler(journal, self.place, self.clock)
        self._started: list[subprocess.Popen[bytes]] = []

    def intent(self, **changes: Any) -> Intent:
        self.serial += 1
        values: dict[str, Any] = {
            "serial": self.serial,
            "run_id": f"run{self.serial:013d}",
            "shard": shard_of(self.serial),
            "owner": "local",
            "request_id": f"req-{self.serial}",
            "argv": ["true"],
            "cwd": "/",
            "limits": {"grace": 10.0},
            "completion": "leader",
            "digests": dict.fromkeys(FIELDS, "d"),
            "key_id": "key-1",
            "boot_id": boot_id(),
            "now_ns": self.clock.wall_ns(),
        }
        return Intent(**(values | changes))

    async def run(self, events: Events | None = (), *, running: bool = False, **changes: Any) -> RunRow:
        """A run whose log holds ``events`` (None: no log at all); nobody holds its lock."""
        intent = self.intent(**changes)
        if events is not None:
            self.write_log(intent, events)
        row = (await self.journal.write(lambda conn: runs.admit(conn, intent))).row
        if running:
            row = await self.move(row, Trigger.RELEASE)
        return row

    async def move(self, row: RunRow, trigger: Trigger, **facts: Any) -> RunRow:
        now = self.clock.wall_ns()
        return await self.journal.write(
            lambda conn: runs.transition(conn, row.run_id, trigger, row.state, now, **facts)
        )

    async def row(self, run_id: str) -> RunRow:
        row = await self.journal.read(lambda conn: runs.get(conn, run_id))
        assert row is not None
        return row

    def paths(self, run: RunRow | Intent) -> RunPaths:
        return RunPaths(str(self.runs_dir), run.shard, run.run_id)

    def log_path(self, run: RunRow | Intent) -> Path:
        return Path(self.paths(run).log(run.attempt))

    def write_log(self, run: RunRow | Intent, events: Events, directory_id: str = DIRECTORY) -> Path:
        """The bytes of a log as its worker would have left them."""
        header = SegmentHeader(directory_id, run.run_id, run.attempt, 1, 1, run.boot_id, 1, {})
        data = header.encode()
        salt = salt_of(run.run_id, run.attempt, 0)
        for seq, (kind, detail) in enumerate(events, 1):
            meta = encode_json({"kind": kind, "detail": detail})
            data += encode_record(salt, len(data), EVENT, 0, seq, 1, 1, meta, b"")
        path = self.log_path(run)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def sleeper(self, lock: Path | None = None, seconds: float = 3131) -> subprocess.Popen[bytes]:
        """A process of ours; with ``lock`` it alone holds the lock of that log, as a worker does."""
        fd = None if lock is None else os.open(lock, os.O_RDWR | os.O_CLOEXEC)
        if fd is not None:
            assert try_lock(fd)
        process = subprocess.Popen(["sleep", str(seconds)], pass_fds=[] if fd is None else [fd])
        self._started.append(process)
        if fd is not None:
            os.close(fd)
        return process

    def kinds(self, row: RunRow) -> list[str]:
        """The kinds of the events in the run's log."""
        page = LogReader(self.paths(row), row.attempt).page()
        return [event.kind for event in page.events]

    def end(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()


def identity_of(process: subprocess.Popen[bytes]) -> ProcessIdentity:
    identity = eventually(lambda: read_identity(process.pid))
    assert identity is not None
    return identity


def dispatched(worker: ProcessIdentity) -> tuple[str, dict[str, object]]:
    return (Kind.RUN_DISPATCHED, {"attempt": 1, "identity": worker.to_dict(), "argv": ["true"], "cwd": "/"})


def released(worker: ProcessIdentity, program: ProcessIdentity) -> list[tuple[str, dict[str, object]]]:
    """The log of a run whose program was let go."""
    spawned: dict[str, object] = {
        "identity": program.to_dict(),
        "requested": "true",
        "canonical": "/bin/true",
    }
    return [dispatched(worker), (Kind.PROGRAM_SPAWNED, spawned), (Kind.PROGRAM_RELEASED, {})]


@asynccontextmanager
async def open_bench(state_dir: Path) -> AsyncIterator[Bench]:
    async with await Journal.open(state_dir / "journal.db") as journal:
        bench = Bench(state_dir, journal)
        try:
            yield bench
        finally:
            bench.end()
            await bench.reconciler.settle()
