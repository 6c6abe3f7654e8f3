"""Logs and identities that are lost, damaged or somebody else's; verdicts that come late, or by thousands."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from durable_supervisor import Command, RunState, Supervisor
from durable_supervisor.journal import runs
from durable_supervisor.journal.connection import Journal
from durable_supervisor.model.events import Kind
from durable_supervisor.model.identity import ProcessIdentity
from durable_supervisor.process.clock import Clock
from durable_supervisor.process.identity import read_identity, read_stat
from durable_supervisor.process.signals import signal_ticks
from durable_supervisor.runlog.create import create_log
from durable_supervisor.runlog.paths import RunPaths
from durable_supervisor.runlog.reader import LogReader
from durable_supervisor.runlog.writer import LogWriter
from tests.crash.harness import assert_nothing_left, logs
from tests.crash.test_life import kill_and_see, worker_of
from tests.crash.test_matrix import stopped
from tests.crash.world import World, check_guarantees, gapless, requests, settle, start_all
from tests.support import PATIENCE, eventually, running


async def test_a_live_runs_log_is_unlinked(world: World) -> None:
    [one] = requests(world, 1)
    with world.host() as host:
        host.opened()
        [run] = start_all(host, [one])
        eventually(lambda: world.ledger.begun("r-1"))
        [log] = logs(world.state_dir)
        log.unlink()
        host.ask("reconcile")
        seen = host.ask("inspect", run=run)
        assert (seen["state"], seen["reason"]) == ("quarantined", "log_missing")
        assert (seen["retryable"], seen["outcome"]) == (False, None)
        again = host.ask("start", argv=one.argv, request_id="r-1")
        assert (again["run_id"], again["state"]) == (run, "quarantined")
        host.kill()
    async with Supervisor.open(world.state_dir) as sup:
        again = await one.send(sup)
        assert (again.id, again.state) == (run, RunState.QUARANTINED)
        world.ledger.open_gate()
        eventually(lambda: world.ledger.ended("r-1") == 5)
        assert world.ledger.begun("r-1") == 1
        settled = await sup.resolve(run, "accept", note="a cleaner took its log")
        assert settled.state is RunState.UNKNOWN
        assert (await one.send(sup)).admission == "existing"
        assert logs(world.state_dir) == []  # reconcile never makes a log
    assert world.ledger.begun("r-1") == 1
    assert_nothing_left(world.state_dir)


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has nothing to do with any run."""
    process = subprocess.Popen(["sleep", "3131"])
    yield process
    process.kill()
    process.wait()


async def test_a_reused_pid_is_never_touched(world: World, stranger: subprocess.Popen[bytes]) -> None:
    [one] = requests(world, 1)
    with world.host() as host:
        host.opened()
        [run] = start_all(host, [one])
        worker = worker_of(host, run)
        eventually(lambda: world.ledger.begun("r-1"))
        host.kill()
    kill_and_see(worker)
    real = read_identity(stranger.pid)
    assert real is not None
    put_program(
        logs(world.state_dir)[0],
        ProcessIdentity.from_dict(real.to_dict() | {"start_ticks": real.start_ticks - 1}),
    )
    async with Supervisor.open(world.state_dir) as sup:
        seen = await sup.inspect(run)
        assert (seen.state, seen.reason) == (RunState.UNKNOWN, "identity_mismatch")
        assert seen.evidence is not None
        assert seen.evidence["program"]["mismatch"]["start_ticks"] == real.start_ticks  # type: ignore[index]
        assert (await sup.stop(run)).result == "already_ended"
        await sup.resolve(run, "kill")
        assert (await one.send(sup)).id == run
    assert running(stranger.pid)
    world.ledger.open_gate()
    assert_nothing_left(world.state_dir)


def put_program(log: Path, program: ProcessIdentity) -> None:
    """Write the log anew, with another program in it: the same records, by the product's own writer."""
    run_id, attempt = log.name.split(".")[0], 1
    paths = RunPaths(str(log.parent.parent), log.parent.name, run_id)
    reader = LogReader(paths, attempt)
    header, events = reader.evidence().header, reader.page(0, 1000).events
    assert header is not None
    log.unlink()
    fd = create_log(paths, header)
    writer = LogWriter(
        fd, paths, header, segment_bytes=1 << 20, stdout_cap=1 << 20, stderr_cap=1 << 20, truncate=True,
        clock=Clock(),
    )  # fmt: skip
    for event in events:
        if event.kind == Kind.OUTPUT:
            writer.append_output(str(event.stream), event.data)
        else:
            spawned = {"identity": program.to_dict()} if event.kind == Kind.PROGRAM_SPAWNED else {}
            writer.append(event.kind, event.detail | spawned)
    writer.flush()
    writer.close()


@pytest.mark.parametrize("step", ["reconcile.judged", "reconcile.before_fold"])
async def test_a_reconciler_stands_still_while_the_run_ends(world: World, step: str) -> None:
    """What it had decided is old when it goes on: the end stands, once."""
    [one] = requests(world, 1)
    with world.host(f"{step}=pause") as host:
        host.opened()
        host.tell("start", argv=one.argv, request_id="r-1")
        eventually(lambda: world.ledger.begun("r-1"))
        eventually(lambda: (stat := read_stat(host.pid)) is not None and stat.state == "T")
        world.ledger.open_gate()
        eventually(lambda: world.ledger.ended("r-1") == 5)
        assert_nothing_left(world.state_dir)  # the worker has written its receipt and gone
        os.kill(host.pid, signal.SIGCONT)
        run = host.ask("start", argv=one.argv, request_id="r-1")["run_id"]
        final = host.ask("wait", run=run)
        assert (final["outcome"]["kind"], final["outcome"]["code"]) == ("exited", 5)
        host.leave()
    await check_guarantees(one, ["finished"])
    async with Supervisor.open(world.state_dir) as sup:
        states = [entry.state for entry in await sup.feed() if entry.run_id == run]
        assert states.count(RunState.FINISHED) == 1
        assert states[-1] is RunState.FINISHED


async def test_one_damaged_log_harms_only_its_own_run(world: World) -> None:
    worlds = requests(world, 3)
    quick = [World(world.state_dir, world.ledger, world.ledger.program(f"q-{n}"), request_id=f"q-{n}")
             for n in range(11)]  # fmt: skip
    with world.host() as host:
        host.opened()
        ids = start_all(host, quick)
        for run in ids:
            host.ask("wait", run=run)
        lost, alive, other = start_all(host, worlds)
        worker = worker_of(host, lost)
        eventually(lambda: len(world.ledger.lines()) == 22 + 3)
        host.kill()
    kill_and_see(worker)
    for run in (ids[5], lost):
        [log] = [path for path in logs(world.state_dir) if path.name.startswith(run)]
        flip(log)
    async with Supervisor.open(world.state_dir) as sup:
        seen = await sup.inspect(lost)
        assert (seen.state, seen.reason) == (RunState.QUARANTINED, "log_corrupt")
        assert seen.log_health is not None
        settled = await sup.inspect(ids[5])
        assert settled.state is RunState.FINISHED
        assert settled.outcome is not None
        assert settled.outcome.code == 5
        assert settled.log_health is not None
        for run in ids[:5] + ids[6:]:
            view = await sup.inspect(run)
            assert (view.state, view.log_health) == (RunState.FINISHED, None)
            await gapless(sup, run)
        for run in (alive, other):
            assert (await sup.inspect(run)).state is RunState.RUNNING
        fresh = await sup.start(Command(argv=["true"]))
        assert (await sup.wait(fresh.id, timeout=PATIENCE)).state is RunState.FINISHED
        world.ledger.open_gate()
        for run in (alive, other):
            assert (await sup.wait(run, timeout=PATIENCE)).state is RunState.FINISHED
        await settle(sup, lost, kill=True)
    for one in (worlds[0], quick[5]):
        assert one.ledger.begun(one.request_id) == 1
        await check_guarantees(one, ["unknown", "finished"])


def flip(log: Path) -> None:
    """One bit, in the middle of the records."""
    data = bytearray(log.read_bytes())
    data[len(data) * 2 // 3] ^= 0x10
    log.write_bytes(data)


async def test_five_thousand_runs_of_another_boot_are_unknown_at_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "durable_supervisor")  # a line for each of them is pytest's cost
    world.argv = world.ledger.program("r-1")
    async with Supervisor.open(world.state_dir) as sup:
        first = await world.send(sup)
        await sup.wait(first.id, timeout=PATIENCE)
    await many_open_rows(world, 5000)
    async with asyncio.timeout(90), Supervisor.open(world.state_dir) as sup:  # no wait or dial for each
        unknown = await sup.list(limit=10_000, states=[RunState.UNKNOWN])
        assert len(unknown.runs) == 5000
        assert {run.reason for run in unknown.runs} == {"log_missing"}
        assert not any(run.retryable for run in unknown.runs)
        assert (await sup.inspect(first.id)).state is RunState.FINISHED


async def many_open_rows(world: World, count: int) -> None:
    async with await Journal.open(world.journal) as journal:
        row = await journal.read(lambda conn: runs.find_request(conn, "local", "r-1"))
        assert row is not None

        def insert(conn: sqlite3.Connection) -> None:
            columns = [one[1] for one in conn.execute("PRAGMA table_info(runs)")]
            fresh = {
                "serial": "?1", "run_id": "?2", "request_id": "?2", "state": "'running'", "outcome": "NULL",
                "receipt": "NULL", "reason": "NULL", "evidence": "NULL", "boot_id": "'another-boot'",
                "ended_ns": "NULL",
            }  # fmt: skip
            values = ", ".join(fresh.get(name, name) for name in columns)
            conn.executemany(
                f"INSERT INTO runs SELECT {values} FROM runs WHERE serial = 1",
                [(number, f"r{number:015d}") for number in range(2, count + 2)],
            )

        await journal.write(insert)


async def test_a_killed_workers_socket_is_taken_away(world: World) -> None:
    [one] = requests(world, 1)
    sockets = world.state_dir / "runs"
    with world.host() as host:
        host.opened()
        [run] = start_all(host, [one])
        eventually(lambda: list(sockets.glob("*/*.sock")))
        kill_and_see(worker_of(host, run))
        eventually(lambda: not list(sockets.glob("*/*.sock")))
        assert host.ask("inspect", run=run)["state"] in ("quarantined", "unknown")
    await check_guarantees(one, ["unknown"], kill=True)


async def test_the_socket_of_a_worker_that_is_killed_behind_its_receipt(world: World) -> None:
    """Its run is settled by then, and nobody will look at it any more."""
    sockets = world.state_dir / "runs"
    with world.host("worker.receipt=pause") as host:
        host.opened()
        run = host.start(world.ledger.program("r-1"))
        [(pid, ticks)] = eventually(lambda: stopped(world.state_dir))
        eventually(lambda: host.ask("reconcile") and host.ask("inspect", run=run)["state"] == "finished")
        assert list(sockets.glob("*/*.sock")) == []
        assert signal_ticks(pid, ticks, signal.SIGKILL)
