"""Kill -9 at every named step, then hold what is left against the guarantees."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from durable_supervisor import Supervisor
from durable_supervisor.model.states import OPEN_STATES
from durable_supervisor.process.identity import read_stat
from durable_supervisor.process.signals import signal_ticks
from tests.crash.collecting import COLLECTIONS, REOPENINGS
from tests.crash.harness import (
    DEAF,
    LEFTOVER,
    NOISY,
    QUICK,
    ROOT,
    STUBBORN,
    Host,
    HostDied,
    logs,
    of_runs,
)
from tests.crash.queued import QUEUE_HOST, WAITING
from tests.crash.world import World, check_guarantees
from tests.imports.test_killed import IMPORTS, REMOVALS
from tests.support import eventually
from tests.upkeep.points import BACKUPS

OPEN = {state.value for state in OPEN_STATES}


@dataclass(frozen=True)
class Scenario:
    """What the program does, and what its host does with it."""

    body: str = QUICK
    first: str = ""
    missing: bool = False  # the program appears only after the crash
    stop: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    def request(self, world: World) -> None:
        world.argv = world.ledger.program(world.request_id, self.body, first=self.first)
        world.options = self.options
        if self.missing:
            world.argv[0] = str(world.ledger.path.with_name("program"))

    def play(self, world: World, host: Host) -> int:
        """Start it, and stop it where that belongs to it; the number of the last request to the host."""
        number = host.tell("start", argv=world.argv, request_id=world.request_id, **self.options)
        if self.stop:
            run = host.answer(number)["run_id"]
            eventually(lambda: world.ledger.begun(world.request_id))
            number = host.tell("stop", run=run)
        return number


EXIT = Scenario()
# Goes on until the gate file is there.
HELD = Scenario('echo ready; n=0; while [ ! -e "$3" ] && [ $n -lt 1200 ]; do n=$((n+1)); sleep 0.05; done')
STOP = Scenario(STUBBORN, DEAF, stop=True, options={"limits": {"grace": 0.2}})
REST = Scenario(LEFTOVER, options={"limits": {"grace": 0.2}})
LONG = Scenario(options={"stdin": "x" * 3_000_000})
MISSING = Scenario(missing=True)
# Output of many segments, far beyond the cap, in writes that the background sync is due for.
LOUD = Scenario(
    f"{NOISY}; sleep 0.1; {NOISY}; {NOISY}",
    options={"limits": {"max_stdout_bytes": 64_000, "max_stderr_bytes": 64_000}},
)

# More than the background sync waits for, from a program that does not end before it.
SYNCED = Scenario(f"{NOISY}; {NOISY}; {NOISY}; {HELD.body}")

FINISHED, NEVER, UNKNOWN, ABSENT = ("finished",), ("not_started",), ("unknown",), ("absent",)

# Where a worker (or the child that becomes the program) dies, and what can be known then.
WORKER: dict[str, tuple[Scenario, tuple[str, ...]]] = {
    "worker.waiting": (EXIT, NEVER),
    "worker.spec_received": (EXIT, NEVER),
    "worker.log_open": (EXIT, NEVER),
    "worker.dispatched": (EXIT, NEVER),
    "worker.forked": (EXIT, NEVER),
    "program.paused": (EXIT, FINISHED),  # killed by a signal, as waitid says
    "worker.spawned": (EXIT, NEVER),
    "worker.released": (EXIT, UNKNOWN),  # logged, and the gate never opened: it cannot be known
    "program.released": (EXIT, FINISHED),
    "worker.gate_open": (EXIT, UNKNOWN),
    "worker.exec_failed": (MISSING, NEVER),
    "worker.refused": (MISSING, NEVER),
    "worker.running": (EXIT, UNKNOWN),
    "worker.socket_bound": (HELD, UNKNOWN),
    "worker.captured": (HELD, UNKNOWN),
    "worker.syncing": (SYNCED, UNKNOWN),
    "worker.synced": (SYNCED, UNKNOWN),
    "log.rolling": (LOUD, UNKNOWN),
    "log.rolled": (LOUD, UNKNOWN),
    "log.compacting": (LOUD, UNKNOWN),
    "log.compacted": (LOUD, UNKNOWN),
    "worker.control_received": (STOP, UNKNOWN),
    "worker.stopping": (STOP, UNKNOWN),
    "worker.terminated": (STOP, UNKNOWN),
    "worker.control_applied": (STOP, UNKNOWN),
    "worker.killed": (STOP, UNKNOWN),
    "worker.before_exited": (EXIT, UNKNOWN),
    "worker.exited": (EXIT, FINISHED),
    "worker.reaped": (EXIT, FINISHED),
    "worker.before_receipt": (EXIT, FINISHED),
    "log.last_word": (EXIT, FINISHED),
    "worker.receipt": (EXIT, FINISHED),
    "worker.finished": (EXIT, FINISHED),
}
LAST_WORDS = ("worker.refused", "log.last_word", "worker.receipt", "worker.finished")
MORE_WORKER = {
    "worker.stopping": (REST, FINISHED),
    "worker.terminated": (REST, FINISHED),
    "worker.before_receipt": (LOUD, FINISHED),
    "log.last_word": (MISSING, NEVER),
}

# Where a host dies that starts, watches and folds a run of its own.
HOST: dict[str, tuple[Scenario, tuple[str, ...]]] = {
    "open.owned": (EXIT, ABSENT),
    "open.key_loaded": (EXIT, ABSENT),
    "open.adopted": (EXIT, ABSENT),
    "open.judged": (EXIT, ABSENT),
    "start.chosen": (EXIT, ABSENT),
    "start.log_unlocked": (EXIT, ABSENT),
    "start.log_created": (EXIT, ABSENT),
    "start.admitting": (EXIT, ABSENT),
    "start.committed": (EXIT, NEVER),
    "start.spawned": (EXIT, FINISHED),  # the spec was on the channel before the worker
    "start.zygote_asked": (EXIT, FINISHED),
    "start.handed_over": (EXIT, FINISHED),
    "start.answered": (EXIT, FINISHED),
    "stop.marked": (STOP, FINISHED),
    "control.sent": (STOP, FINISHED),
    "reconcile.judged": (EXIT, FINISHED),
    "reconcile.before_fold": (EXIT, FINISHED),
    "reconcile.folding": (EXIT, FINISHED),
    "reconcile.folded": (EXIT, FINISHED),
}
MORE_HOST = {
    "start.spawned": (LONG, NEVER),  # of a long one the worker never gets the rest
    "start.zygote_asked": (LONG, NEVER),
    "reconcile.judged": (MISSING, NEVER),
    "reconcile.before_fold": (HELD, FINISHED),
    "reconcile.folding": (STOP, FINISHED),
    "reconcile.folded": (MISSING, NEVER),
}

# Where the zygote dies, which no run is harmed by.
ZYGOTE = ("zygote.asked", "zygote.forked")

# Where the next host dies, which finds what another one has left.  See the tests below.
WORDS = ("reconcile.before_word", "reconcile.word", "log.last_word", "reconcile.judged", "reconcile.folding")
REPAIRS = ("log.repairing", "log.repaired", "log.last_word", "reconcile.before_word", "reconcile.folding")
RESOLVES = ("resolve.before_record", "resolve.recorded", "resolve.settled")
RECOVERIES = ("recover.set_aside", "recover.adopted", "recover.rebuilt")
SWEEPS = ("open.swept",)


def test_every_failpoint_of_the_source_has_its_row() -> None:
    """A step that somebody adds needs a row here; a row needs its step."""
    named = re.compile(r'failpoint\(\s*"([a-z_.]+)"\s*\)')
    source = {
        name
        for path in (ROOT / "src" / "durable_supervisor").rglob("*.py")
        for name in named.findall(path.read_text())
    }
    covered = {*WORKER, *HOST, *ZYGOTE, *WORDS, *REPAIRS, *RESOLVES, *RECOVERIES, *SWEEPS}
    covered |= {*QUEUE_HOST, *WAITING, *COLLECTIONS, *REOPENINGS, *BACKUPS, *IMPORTS, *REMOVALS}
    # The example in the module's own description is no step.
    assert source == covered


def _rows(*tables: Mapping[str, tuple[Scenario, tuple[str, ...]]]) -> list[Any]:
    return [
        pytest.param(name, scenario, expected, id=f"{name}{'-more' * number}")
        for number, table in enumerate(tables)
        for name, (scenario, expected) in table.items()
    ]


def stopped(state_dir: Path) -> list[tuple[int, int]]:
    """Processes of the runs that a failpoint has brought to a stand."""
    found = []
    for pid, ticks in of_runs(state_dir):
        stat = read_stat(pid)
        if stat is not None and stat.state == "T":
            found.append((pid, ticks))
    return found


def make_program(path: str) -> None:
    """What was missing appears: it is what ``sh`` would have been."""
    os.symlink("/bin/sh", path)


@pytest.mark.parametrize("host_lives", [True, False], ids=["host lives", "host dies"])
@pytest.mark.parametrize(("name", "scenario", "expected"), _rows(WORKER, MORE_WORKER))
async def test_a_worker_is_killed(
    world: World, name: str, scenario: Scenario, expected: tuple[str, ...], host_lives: bool
) -> None:
    scenario.request(world)
    with world.host(f"{name}=pause", "exec" if host_lives else "zygote") as host:
        host.opened()
        scenario.play(world, host)
        [(pid, ticks)] = eventually(lambda: stopped(world.state_dir), message=f"{name} was not reached")
        if host_lives:
            # To stand still is not to be dead: it goes on as it was, or its last word is out already.
            allowed = OPEN.union(expected if name in LAST_WORDS else ())
            assert allowed.issuperset(host.ask("reconcile")["changed"].values())
        else:
            host.kill()
        assert signal_ticks(pid, ticks, signal.SIGKILL)
        eventually(lambda: (stat := read_stat(pid)) is None or stat.dead or stat.start_ticks != ticks)
        if host_lives:
            host.ask("reconcile")
            host.leave()
    if scenario.missing:
        make_program(world.argv[0])
    world.ledger.open_gate()
    # Only an exit that was logged leaves it open what became of the rest of the tree.
    leaves = scenario is REST and name != "worker.before_receipt"
    await check_guarantees(world, expected, kill=scenario.stop, leaves=leaves)


@pytest.mark.parametrize(("name", "scenario", "expected"), _rows(HOST, MORE_HOST))
async def test_a_host_is_killed(
    world: World, name: str, scenario: Scenario, expected: tuple[str, ...]
) -> None:
    scenario.request(world)
    with world.host(f"{name}=kill", "zygote" if "zygote" in name else "") as host:
        try:
            host.opened()
            scenario.play(world, host)
        except HostDied:
            pass
        host.died()
    if scenario.missing:
        make_program(world.argv[0])
    world.ledger.open_gate()
    if scenario.stop:
        await stop_it(world)  # the worker may not have heard of it
    await check_guarantees(world, expected)


async def stop_it(world: World) -> None:
    async with Supervisor.open(world.state_dir) as sup:
        found = await world.find(sup)
        assert found is not None
        receipt = await sup.stop(found.id)
        assert receipt.confirmed
        assert receipt.outcome is not None
        assert (receipt.outcome.kind.value, receipt.outcome.signal) == ("cancelled", signal.SIGKILL)


RETRIED = {name: row for name, row in HOST.items() if name.startswith("start.")}


@pytest.mark.parametrize("name", RETRIED)
async def test_a_host_is_killed_in_a_second_attempt(world: World, name: str) -> None:
    MISSING.request(world)
    with world.host() as host:
        host.opened()
        first = host.ask("start", argv=world.argv, request_id=world.request_id)
        assert (first["state"], first["attempt"]) == ("not_started", 1)
        host.leave()
    make_program(world.argv[0])
    with world.host(f"{name}=kill", "zygote") as host:
        host.opened()
        host.tell("start", argv=world.argv, request_id=world.request_id)
        host.died()
    expected = RETRIED[name][1]
    found = await check_guarantees(world, NEVER if expected == ABSENT else expected)
    assert found is not None
    assert (found.id, found.attempt) == (first["run_id"], 1 if expected == ABSENT else 2)


@pytest.mark.parametrize("name", WORDS)
@pytest.mark.parametrize(
    ("step", "scenario", "expected"),
    [
        ("worker.spawned", EXIT, NEVER),
        ("worker.running", HELD, UNKNOWN),  # quarantined first, while the program lives
        ("worker.exited", EXIT, FINISHED),
        ("worker.released", EXIT, UNKNOWN),
    ],
    ids=["not started", "quarantined", "finished", "unknown"],
)
async def test_a_reconciler_is_killed_over_a_dead_worker(
    world: World, name: str, step: str, scenario: Scenario, expected: tuple[str, ...]
) -> None:
    await leave_dead_worker(world, step, scenario)
    with world.host(f"{name}=kill") as host:
        host.died()
    world.ledger.open_gate()
    await check_guarantees(world, expected)


async def leave_dead_worker(world: World, step: str, scenario: Scenario) -> None:
    """Neither host nor worker lives, and nobody has judged it yet."""
    scenario.request(world)
    with world.host(f"{step}=pause") as host:
        host.opened()
        scenario.play(world, host)
        [(pid, ticks)] = eventually(lambda: stopped(world.state_dir))
        host.kill()
        assert signal_ticks(pid, ticks, signal.SIGKILL)
        eventually(lambda: (stat := read_stat(pid)) is None or stat.start_ticks != ticks)


@pytest.mark.parametrize("name", ["worker.forked", "worker.spawned", "worker.released", "worker.gate_open"])
async def test_a_worker_is_killed_whose_program_began_as_a_copy(world: World, name: str) -> None:
    """As a confined one does: a point within the child needs one, also if it lies a thousand passes ahead."""
    await leave_dead_worker(world, f"program.paused=kill@1000,{name}", EXIT)
    await check_guarantees(world, WORKER[name][1])


@pytest.mark.parametrize("name", REPAIRS)
async def test_a_repair_is_killed(world: World, name: str) -> None:
    await leave_dead_worker(world, "worker.running", EXIT)
    [log] = logs(world.state_dir)
    log.write_bytes(log.read_bytes() + b"\xabDR\x1e\x01\x00")  # a record not written to its end
    with world.host(f"{name}=kill") as host:
        host.died()
    await check_guarantees(world, UNKNOWN)


@pytest.mark.parametrize("name", RESOLVES)
async def test_a_resolver_is_killed(world: World, name: str) -> None:
    await leave_dead_worker(world, "worker.running", HELD)
    with world.host(f"{name}=kill") as host:
        host.opened()
        run = host.ask("start", argv=world.argv, request_id=world.request_id)
        assert (run["state"], run["admission"]) == ("quarantined", "existing")
        host.tell("resolve", run=run["run_id"], action="kill")
        host.died()
    await check_guarantees(world, UNKNOWN)
    assert world.ledger.ended(world.request_id) is None


@pytest.mark.parametrize("name", RECOVERIES)
async def test_a_recovery_is_killed(world: World, name: str) -> None:
    EXIT.request(world)
    with world.host() as host:
        host.opened()
        run = host.start(world.argv, world.request_id)
        host.ask("wait", run=run)
        host.leave()
    world.journal.unlink()
    with world.host(f"{name}=kill", "recover") as host:
        host.died()
    report = await Supervisor.recover(world.state_dir)
    assert run in [*report["added"], *report["kept"]]  # type: ignore[misc]
    found = await check_guarantees(world, FINISHED)
    assert found is not None
    assert found.id == run


async def test_a_sweep_is_killed(world: World) -> None:
    EXIT.request(world)
    with world.host("start.log_created=kill") as host:
        host.opened()
        EXIT.play(world, host)
        host.died()
    assert len(logs(world.state_dir)) == 1
    with world.host("open.swept=kill") as host:
        host.died()
    assert logs(world.state_dir) == []
    await check_guarantees(world, ABSENT)


@pytest.mark.parametrize("name", ZYGOTE)
async def test_a_zygote_is_killed(world: World, name: str) -> None:
    EXIT.request(world)
    with world.host(f"{name}=kill", "zygote") as host:
        host.opened()
        run = host.start(world.argv, world.request_id)
        assert host.ask("wait", run=run)["outcome"]["code"] == 5
        host.leave()
    await check_guarantees(world, FINISHED)
