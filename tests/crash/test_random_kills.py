"""Arbitrary kills over one real directory, in any order that hypothesis thinks of.

The oracle is what the programs wrote down themselves: each of them goes on until a gate
opens, so that every kill meets a live one.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from durable_supervisor import Supervisor
from durable_supervisor.journal import runs
from durable_supervisor.journal.reader import JournalReader
from durable_supervisor.model.identity import ProcessIdentity
from durable_supervisor.process.identity import Liveness, probe
from durable_supervisor.process.signals import signal_process
from durable_supervisor.runlog.paths import find_run
from durable_supervisor.runlog.reader import LogReader
from tests.crash.harness import Host, HostDied, Ledger, Refused, assert_nothing_left, end_all
from tests.crash.world import World, check_guarantees, settle
from tests.support import eventually

EXAMPLES = 40 if os.environ.get("CRASH_TESTS_FULL") else 6
STEPS = 9
REQUESTS = st.sampled_from(["r-1", "r-2", "r-3"])
# Where the next worker or host stands still until somebody kills it, or dies at once.
STEPS_OF_WORKERS = st.sampled_from(
    [
        "",
        "worker.spawned=kill",
        "worker.released=kill",
        "worker.running=kill@2",
        "worker.before_exited=kill",
        "waiting.queued=kill",
        "waiting.dispatched=kill",
    ]
)
STEPS_OF_HOSTS = st.sampled_from(
    [
        "",
        "start.admitting=kill@2",
        "start.committed=kill",
        "start.spawned=kill@2",
        "reconcile.folding=kill@3",
        "queue.picked=kill",
        "queue.marked=kill",
        "queue.sent=kill",
    ]
)
SETTLED = ("finished", "not_started", "unknown")


class RandomKills(RuleBasedStateMachine):
    """Hosts come and go, workers die, requests are sent again and again."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="random-kills-"))
        state_dir = self.folder / "state"
        state_dir.mkdir(mode=0o700)
        self.ledger = Ledger(self.folder)
        self.worlds = {
            name: World(state_dir, self.ledger, self.ledger.waiting(name), request_id=name)
            for name in ("r-1", "r-2", "r-3")
        }
        self.state_dir = state_dir
        self.host: Host | None = None
        self.ids: dict[str, str] = {}
        self.settled: dict[str, tuple[Any, ...]] = {}

    @rule(worker=STEPS_OF_WORKERS, host=STEPS_OF_HOSTS, mode=st.sampled_from(["exec", "zygote", "one"]))
    def new_host(self, worker: str, host: str, mode: str) -> None:
        """Another host takes over; the one before it is killed."""
        self.kill_host()
        self.host = Host(self.state_dir, ",".join(filter(None, (worker, host))), mode=mode)
        self._ask(self.host.opened)

    @precondition(lambda self: self.host is not None)
    @rule(name=REQUESTS)
    def send(self, name: str) -> None:
        """For the first time, or again."""
        host = self.host
        assert host is not None
        argv = self.worlds[name].argv
        answer = self._ask(lambda: host.ask("start", argv=argv, request_id=name, queue=True))
        if answer is not None:
            assert self.ids.setdefault(name, answer["run_id"]) == answer["run_id"]

    @precondition(lambda self: self.host is not None)
    @rule(name=REQUESTS)
    def send_and_kill(self, name: str) -> None:
        """The host dies somewhere in the middle of it."""
        assert self.host is not None
        self.host.tell("start", argv=self.worlds[name].argv, request_id=name, queue=True)
        self.kill_host()

    @precondition(lambda self: self.ids)
    @rule(name=REQUESTS)
    def kill_worker(self, name: str) -> None:
        worker = self._worker(name)
        if worker is not None and signal_process(worker, signal.SIGKILL):
            eventually(lambda: probe(worker) is Liveness.GONE)

    @precondition(lambda self: self.host is not None and self.ids)
    @rule(name=REQUESTS)
    def stop(self, name: str) -> None:
        host = self.host
        assert host is not None
        if name in self.ids:
            self._ask(lambda: host.ask("stop", run=self.ids[name], grace=0.2))

    @precondition(lambda self: self.host is not None)
    @rule()
    def reconcile(self) -> None:
        host = self.host
        assert host is not None
        self._ask(lambda: host.ask("reconcile"))

    @rule()
    def kill_host(self) -> None:
        if self.host is not None:
            self.host.kill()
            self.host = None

    @invariant()
    def nothing_runs_twice_and_what_is_settled_stays(self) -> None:
        for name in self.worlds:
            assert self.ledger.begun(name) <= 1
        if not (self.state_dir / "journal.db").exists():
            return
        with JournalReader.open(str(self.state_dir / "journal.db")) as journal:
            for name in self.worlds:
                row = journal.read(lambda conn, name=name: runs.find_request(conn, "local", name))  # type: ignore[misc]
                if row is None or row.may_retry or row.state.value not in SETTLED:
                    continue
                fact = (row.run_id, row.state, row.attempt, row.outcome, row.reason, row.receipt)
                assert self.settled.setdefault(name, fact) == fact

    def teardown(self) -> None:
        try:
            self.kill_host()
            asyncio.run(self._settle_all())
            for world in self.worlds.values():
                asyncio.run(check_guarantees(world, [*SETTLED, "absent"], kill=True))
        finally:
            end_all(self.state_dir)
            shutil.rmtree(self.folder)

    async def _settle_all(self) -> None:
        self.ledger.open_gate()
        async with Supervisor.open(self.state_dir) as sup:
            for run in (await sup.list()).runs:
                final = (await settle(sup, run.id, kill=True))[-1]
                if run.request_id in self.settled:
                    assert self.settled[run.request_id][1] is final.state
        assert_nothing_left(self.state_dir)

    def _ask(self, question: Any) -> Any:
        """The answer, or None when a failpoint had the host die first, or it was refused."""
        try:
            return question()
        except HostDied:
            assert self.host is not None
            self.host.died()
            self.kill_host()
        except Refused as refused:
            if refused.code not in ("NOT_RUNNING", "NOT_CONFIRMED"):
                raise
        return None

    def _worker(self, name: str) -> ProcessIdentity | None:
        paths = find_run(str(self.state_dir / "runs"), self.ids.get(name, ""))
        if paths is None:
            return None
        for attempt in (3, 2, 1):
            worker = LogReader(paths, attempt).evidence().worker
            if worker is not None:
                return ProcessIdentity.from_dict(worker)
        return None


@pytest.mark.timeout(600)
def test_any_kills_in_any_order() -> None:
    run_state_machine_as_test(
        RandomKills,
        settings=settings(max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None, database=None),
    )
