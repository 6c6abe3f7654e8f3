"""Life and death of hosts, workers and programs, one real story a test."""

from __future__ import annotations

import os
import signal
import stat
from pathlib import Path
from typing import Any

import pytest

from durable_supervisor import Command, Observer, RunState, Supervisor, SupervisorError
from durable_supervisor.model.errors import ErrorCode
from durable_supervisor.model.identity import ProcessIdentity
from durable_supervisor.process.identity import Liveness, probe
from durable_supervisor.process.signals import signal_process, signal_ticks
from durable_supervisor.process.tree import descendants
from tests.crash.harness import Host, Refused, assert_nothing_left, logs
from tests.crash.world import World, check_guarantees, gapless, read_all, settle
from tests.support import PATIENCE, eventually, eventually_async

TICKS = "i=0; while [ $i -lt 600 ]; do i=$((i+1)); echo tick $i; sleep 0.1; done"


def worker_of(host: Host, run: str) -> ProcessIdentity:
    """The run's worker, once it is on record."""

    def look() -> Any:
        try:
            return host.ask("inspect", run=run)["worker"]
        except Refused:
            return None  # its log is there before its row

    return ProcessIdentity.from_dict(eventually(look))


def kill_and_see(identity: ProcessIdentity) -> None:
    assert signal_process(identity, signal.SIGKILL)
    eventually(lambda: probe(identity) is Liveness.GONE)


async def test_a_program_ticks_on_over_the_hosts_death(world: World) -> None:
    with world.host() as host:
        host.opened()
        run = host.start(["sh", "-c", TICKS])
        page: dict[str, Any] = {}
        eventually(lambda: page.update(host.ask("events", run=run)) or len(page["events"]) > 8)
        cursor = page["next_after"]
        host.kill()
    async with Observer.open(world.state_dir) as reader:  # nobody owns the directory now
        await eventually_async(lambda: _grown(reader, run, cursor + 15))
    async with Supervisor.open(world.state_dir) as sup:
        assert (await sup.inspect(run)).state is RunState.RUNNING
        rest = (await sup.events(run, after=cursor, limit=1000)).events
        seen = [event["seq"] for event in page["events"]] + [event.seq for event in rest]
        assert seen == list(range(1, len(seen) + 1))
        text = "".join(event.get("text", "") for event in page["events"]) + "".join(e.text for e in rest)
        lines = text.splitlines()
        assert lines == [f"tick {number}" for number in range(1, len(lines) + 1)]
        await sup.stop(run, grace=5)
        await gapless(sup, run)
    assert_nothing_left(world.state_dir)


async def _grown(reader: Observer, run: str, head: int) -> bool:
    return (await reader.inspect(run)).head >= head


@pytest.mark.parametrize("code", [0, 7])
async def test_the_end_comes_while_nobody_lives(world: World, code: int) -> None:
    world.argv = world.ledger.waiting("r-1", code)
    with world.host() as host:
        host.opened()
        run = host.start(world.argv)
        host.kill()
    world.ledger.open_gate()
    eventually(lambda: world.ledger.ended("r-1") == code)
    async with Observer.open(world.state_dir) as reader:  # told already, with nobody to fold it
        final = await reader.wait(run, timeout=10)
        assert final.outcome is not None
        assert (final.outcome.kind.value, final.outcome.code) == ("exited", code)
    async with Supervisor.open(world.state_dir) as sup:
        page = await sup.list(states=[RunState.FINISHED])  # as the journal has it, without anyone asking
        assert [seen.id for seen in page.runs] == [run]
    found = await check_guarantees(world, ["finished"], exit_code=code)
    assert found is not None
    assert found.outcome is not None
    assert (found.outcome.kind.value, found.outcome.code, found.outcome.signal) == ("exited", code, None)


@pytest.mark.parametrize("host_lives", [True, False])
async def test_the_worker_is_killed_and_the_program_ends_later(world: World, host_lives: bool) -> None:
    world.argv = world.ledger.waiting("r-1", 3)
    with world.host() as host:
        host.opened()
        run = host.start(world.argv)
        worker = worker_of(host, run)
        eventually(lambda: world.ledger.begun("r-1"))
        if not host_lives:
            host.kill()
        kill_and_see(worker)
        if host_lives:
            eventually(lambda: host.ask("inspect", run=run)["state"] == "quarantined")
            with pytest.raises(Refused) as caught:
                host.ask("wait", run=run)
            assert caught.value.code == "OUTCOME_UNKNOWN"
            assert caught.value.document["details"]["run_id"] == run
            host.leave()
    async with Supervisor.open(world.state_dir) as sup:
        seen = await sup.inspect(run)
        assert (seen.state, seen.reason) == (RunState.QUARANTINED, "program_alive")
        assert seen.evidence
        again = await world.send(sup)
        assert (again.id, again.state, again.admission) == (run, RunState.QUARANTINED, "existing")
        world.ledger.open_gate()
        eventually(lambda: world.ledger.ended("r-1") == 3)
        assert [view.state.value for view in await settle(sup, run)][-1] == "unknown"
        with pytest.raises(SupervisorError) as lost:
            await sup.wait(run, timeout=10)
        assert lost.value.code is ErrorCode.OUTCOME_UNKNOWN
        assert lost.value.details["evidence"]
    found = await check_guarantees(world, ["unknown"], exit_code=3)
    assert found is not None
    assert found.outcome is None
    assert found.receipt is None


async def test_a_lost_program_is_ended_by_resolve(world: World) -> None:
    world.argv = world.ledger.waiting("r-1")
    with world.host() as host:
        host.opened()
        run = host.start(world.argv)
        # It has written by now: without its worker it would be ended by SIGPIPE instead.
        eventually(lambda: "output" in [one["kind"] for one in host.ask("events", run=run)["events"]])
        kill_and_see(worker_of(host, run))
        seen: dict[str, Any] = {}
        eventually(lambda: seen.update(host.ask("inspect", run=run)) or seen["reason"])
        program = ProcessIdentity.from_dict(seen["program"])
        assert probe(program) is Liveness.ALIVE
        with pytest.raises(Refused) as caught:
            host.ask("stop", run=run)
        assert caught.value.code == "NOT_RUNNING"
        resolved = host.ask("resolve", run=run, action="kill")
        assert (resolved["state"], resolved["resolution"]["action"]) == ("unknown", "kill")
        assert probe(program) is Liveness.GONE
        host.leave()
    await check_guarantees(world, ["unknown"])
    assert world.ledger.ended("r-1") is None


async def test_the_worker_is_killed_before_the_gate_opens(world: World) -> None:
    world.argv = world.ledger.program("r-1")
    with world.host("worker.spawned=pause") as host:
        host.opened()
        started = host.tell("start", argv=world.argv, request_id="r-1")
        [log] = eventually(lambda: logs(world.state_dir))
        run = log.name.partition(".")[0]
        worker = worker_of(host, run)
        [paused] = eventually(lambda: descendants(worker.pid))
        kill_and_see(worker)
        # It holds nothing that would keep its own gate, or the log's lock, from being let go of.
        eventually(lambda: not signal_ticks(paused.pid, paused.start_ticks, 0), message="it waits for ever")
        answer = host.answer(started)
        assert (answer["run_id"], answer["state"]) == (run, "not_started")
        assert host.ask("inspect", run=run)["retryable"]
        host.leave()
    assert world.ledger.begun("r-1") == 0
    found = await check_guarantees(world, ["not_started"])
    assert found is not None
    assert found.reason == "worker_lost"
    assert world.ledger.begun("r-1") == 1


async def test_one_request_id_five_times(world: World) -> None:
    world.argv = world.ledger.waiting("r-1")
    with world.host() as host:
        host.opened()
        numbers = [host.tell("start", argv=world.argv, request_id="r-1") for _ in range(3)]
        answers = [host.answer(number) for number in numbers]
        host.kill()
    async with Supervisor.open(world.state_dir) as sup:
        fourth = await world.send(sup)
        assert fourth.state is RunState.RUNNING
        world.ledger.open_gate()
        final = await sup.wait(fourth.id, timeout=PATIENCE)
        fifth = await world.send(sup)
        assert {answer["run_id"] for answer in answers} == {fourth.id} == {fifth.id}
        assert sorted(answer["admission"] for answer in answers) == ["existing", "existing", "new"]
        assert final.outcome is not None
        assert final.outcome.code == 5
        assert fifth.state is RunState.FINISHED
    assert world.ledger.begun("r-1") == 1
    await check_guarantees(world, ["finished"])


async def test_another_request_under_the_same_id_is_a_conflict(world: World, tmp_path: Path) -> None:
    tool = tmp_path / "bin" / "tool"
    tool.parent.mkdir()
    _executable(tool, "exit 5")
    request: dict[str, Any] = {
        "argv": ["tool", "a"],
        "cwd": str(tmp_path),
        "env": {"PATH": f"{tool.parent}:{os.environ['PATH']}", "MODE": "one"},
    }
    other: dict[str, dict[str, Any]] = {
        "argv": {"argv": ["tool", "b"]},
        "env": {"env": request["env"] | {"MODE": "two"}},
        "cwd": {"cwd": str(tool.parent)},
    }
    async with Supervisor.open(world.state_dir) as sup:
        run = await sup.start(Command(**request), request_id="r-1")
        final = await sup.wait(run.id, timeout=PATIENCE)
        assert final.outcome is not None
        assert final.outcome.code == 5
        for field, change in other.items():
            with pytest.raises(SupervisorError) as caught:
                await sup.start(Command(**(request | change)), request_id="r-1")
            assert caught.value.code is ErrorCode.IDEMPOTENCY_CONFLICT
            assert caught.value.details["fields"] == [field]
            assert "two" not in str(caught.value)
        _executable(tool, "exit 6")  # upgraded behind the same name: the same request
        again = await sup.start(Command(**request), request_id="r-1")
        assert (again.id, again.admission, again.state) == (run.id, "existing", RunState.FINISHED)
        assert len((await sup.list()).runs) == 1


def _executable(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(stat.S_IRWXU)


@pytest.mark.parametrize("host_dies", [False, True])
async def test_a_missing_program_appears_and_runs_once(world: World, host_dies: bool) -> None:
    program = world.ledger.path.with_name("tool")
    world.argv = [str(program), "r-1"]
    with world.host() as host:
        host.opened()
        first = host.ask("start", argv=world.argv, request_id="r-1")
        assert (first["state"], first["attempt"]) == ("not_started", 1)
        seen = host.ask("inspect", run=first["run_id"])
        assert (seen["reason"], seen["retryable"], seen["outcome"]) == ("ENOENT", True, None)
        if host_dies:
            host.kill()
        else:
            host.leave()
    _executable(program, f'echo "begin $1 $$" >> "{world.ledger.path}"; exit 5')
    async with Supervisor.open(world.state_dir) as sup:
        second = await world.send(sup)
        assert (second.id, second.attempt, second.admission) == (first["run_id"], 2, "retry")
        final = await sup.wait(second.id, timeout=PATIENCE)
        assert final.outcome is not None
        assert final.outcome.code == 5
        third = await world.send(sup)
        assert (third.id, third.attempt, third.admission) == (second.id, 2, "existing")
        kinds = [event.kind for event in await gapless(sup, second.id)]
        assert kinds.count("run.dispatched") == 2
        assert kinds.index("run.not_started") < kinds.index("program.released")
    assert world.ledger.begun("r-1") == 1


async def test_a_client_dies_between_the_intent_and_the_worker(world: World) -> None:
    world.argv = world.ledger.program("r-1")
    with world.host("start.committed=kill") as host:
        host.opened()
        host.tell("start", argv=world.argv, request_id="r-1")
        host.died()
    async with Supervisor.open(world.state_dir) as sup:
        [seen] = (await sup.list(states=[RunState.NOT_STARTED])).runs  # judged by the opening itself
        assert seen.retryable
    await check_guarantees(world, ["not_started"])
    assert world.ledger.begun("r-1") == 1


async def test_a_program_that_kills_its_whole_group_at_its_end(world: World) -> None:
    body = "trap 'kill 0' EXIT; sleep 3131 & echo here"
    script = f'echo "begin r-1 $$" >> "{world.ledger.path}"; {body}'
    world.argv = ["sh", "-c", script]
    with world.host() as host:
        host.opened()
        run = host.start(world.argv)
        worker = worker_of(host, run)
        final = host.ask("wait", run=run)
        # It signals itself too, before it is out of its own trap.
        assert (final["outcome"]["kind"], final["outcome"]["signal"]) == ("signaled", signal.SIGTERM)
        assert final["receipt"]["cleanup_confirmed"] is True
        assert final["log_health"] is None
        eventually(lambda: probe(worker) is Liveness.GONE)  # by itself, after its receipt
        host.leave()
    async with Supervisor.open(world.state_dir) as sup:
        texts = "".join(event.text for event in await read_all(sup, run, 100))
        assert texts == "here\n"
        await gapless(sup, run)
    assert_nothing_left(world.state_dir)
