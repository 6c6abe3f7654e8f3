"""Runs that wait for a slot: in order, through every death, and never executed twice."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from durable_supervisor import ErrorCode, Limits, Observer, RunState, Supervisor
from durable_supervisor.model.identity import ProcessIdentity
from durable_supervisor.model.outcome import OutcomeKind
from durable_supervisor.process.signals import signal_process
from durable_supervisor.wire.documents import validate
from tests.contract.hosts import HostScript, refused
from tests.contract.lines import Yard, counts, finished, hold, in_state, queue
from tests.contract.runs import rests
from tests.support import PATIENCE, eventually, running


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return Yard(tmp_path)


async def worker_of(sup: Observer, run: str) -> ProcessIdentity:
    seen = await sup.inspect(run)
    assert seen.worker is not None
    return ProcessIdentity.from_dict(seen.worker)


async def kinds(sup: Observer, run: str) -> list[str]:
    return [event.kind for event in (await sup.events(run)).events]


async def test_first_come_first_served_but_for_priority_and_an_owner_at_its_limit(
    state_dir: Path, yard: Yard
) -> None:
    async with Supervisor.open(state_dir, max_concurrent_runs=2, max_runs_per_owner=1) as sup:
        first = await hold(sup, yard, "a-first", owner="a")
        await hold(sup, yard, "b-first", owner="b")
        runs = [
            await queue(sup, yard, "a-2", owner="a"),
            await queue(sup, yard, "a-3", owner="a", priority=5),
            await queue(sup, yard, "b-2", owner="b", priority=100),
            await queue(sup, yard, "a-4", owner="a", priority=-5),
            await queue(sup, yard, "a-5", owner="a", priority=5),
        ]
        assert (sup.capacity().held, sup.capacity().queued) == (2, 5)
        yard.release("a-first")
        await finished(sup, first, *(run for run in runs if run.request_id != "b-2"))
        assert yard.signed_in()[2:] == ["a-3", "a-5", "a-2", "a-4"]
        assert (await sup.inspect(runs[2].id)).state is RunState.QUEUED
        yard.release("b-first")
        await finished(sup, runs[2])
        await counts(sup, 0, 0)


async def test_everybody_is_told_of_it(state_dir: Path, yard: Yard) -> None:
    async with Supervisor.open(state_dir, max_concurrent_runs=1, max_queued_runs=1) as sup:
        first = await hold(sup, yard, "first")
        run = await queue(sup, yard, "next", priority=3)
        async with refused(ErrorCode.CAPACITY_EXHAUSTED) as caught:
            await sup.start(yard.command("third"), queue=True)
        assert caught().details == {"scope": "queue", "limit": 1, "held": 1}
        async with refused(ErrorCode.WAIT_TIMEOUT) as caught:
            await sup.wait(run.id, timeout=0.05)
        assert caught().details["state"] == "queued"
        async with refused(ErrorCode.NOT_RUNNING):
            await sup.signal(run.id, signal.SIGTERM)
        async with refused(ErrorCode.NOT_RUNNING):
            await sup.write_stdin(run.id, b"x")
        async with sup.attach(run.id) as attached:  # the first to come may have the input of what is to come
            assert await attached.lease()
        assert [entry.state.value for entry in await sup.feed() if entry.run_id == run.id] == ["queued"]
        assert [seen.id for seen in (await sup.list(states=[RunState.QUEUED])).runs] == [run.id]
    async with Observer.open(state_dir) as observer:  # nobody owns the directory now
        seen = await observer.inspect(run.id)
        assert (seen.state, seen.program) == (RunState.QUEUED, None)
        events = (await observer.events(run.id)).events
        validate("event", events[0].to_dict())
        validate("inspect", seen.to_dict())
        assert events[0].kind == "run.queued"
        assert (events[0].detail["priority"], events[0].detail["identity"]) == (3, seen.worker)
        followed = asyncio.create_task(_follow(observer, run.id))  # from the queue to the end
        async with Supervisor.open(state_dir, max_concurrent_runs=1) as sup:
            yard.release("first")
            await finished(sup, first, run)
            await sup.reconcile()  # what its log says is folded
            feed = [entry.state.value for entry in await sup.feed() if entry.run_id == run.id]
        assert feed[:2] == ["queued", "starting"]
        assert feed[-1] == "finished"
        seqs = await followed
    assert seqs == list(range(1, len(seqs) + 1))


async def _follow(sup: Observer, run: str) -> list[int]:
    return [event.seq async for event in sup.follow(run)]


@pytest.mark.parametrize("who", ["owner", "observer", "owner of a dead worker"])
async def test_a_stop_takes_it_out_of_the_queue_for_good(state_dir: Path, yard: Yard, who: str) -> None:
    async with Supervisor.open(state_dir, max_concurrent_runs=1) as sup, Observer.open(state_dir) as observer:
        first = await hold(sup, yard, "first")
        run = await queue(sup, yard, "next")
        if who == "owner of a dead worker":
            signal_process(await worker_of(sup, run.id), signal.SIGKILL)
        stopper = observer if who == "observer" else sup
        receipt = await stopper.stop(run.id)
        validate("stop", receipt.to_dict())
        assert (receipt.state, receipt.confirmed) == (RunState.NOT_STARTED, True)
        if "dead" not in who:
            assert receipt.result == "not_started"
            assert (await kinds(sup, run.id))[-1] == "run.not_started"
        seen = await in_state(sup, run.id, RunState.NOT_STARTED)
        assert seen.reason == ("worker_lost" if "dead" in who else "stopped")
        assert not seen.retryable
        assert (await sup.stop(run.id)).result == "already_ended"
        again = await sup.start(yard.command("next"), request_id="next", queue=True)
        assert (again.admission, again.attempt, again.state) == ("existing", 1, RunState.NOT_STARTED)
        await counts(sup, 1, 0)
        yard.release("first")
        await finished(sup, first)
        await finished(sup, await sup.start(yard.command("last")))
    assert yard.signed_in() == ["first", "last"]


@pytest.mark.parametrize(
    ("signo", "reason"), [(signal.SIGTERM, "worker_terminated"), (signal.SIGKILL, "worker_lost")]
)
async def test_a_waiting_worker_that_is_ended_proves_that_nothing_ran(
    state_dir: Path, yard: Yard, signo: signal.Signals, reason: str
) -> None:
    async with Supervisor.open(state_dir, max_concurrent_runs=1) as sup:
        first = await hold(sup, yard, "first")
        lost = await queue(sup, yard, "lost")
        other = await queue(sup, yard, "other")
        signal_process(await worker_of(sup, lost.id), signo)
        seen = await in_state(sup, lost.id, RunState.NOT_STARTED)
        assert (seen.reason, seen.retryable) == (reason, True)
        await counts(sup, 1, 1)
        again = await queue(sup, yard, "lost", priority=9)  # a new attempt, at a place of its own
        assert (again.id, again.admission, again.attempt) == (lost.id, "retry", 2)
        assert [entry.trigger for entry in await sup.feed() if entry.run_id == lost.id][-1] == "requeue"
        yard.release("first")
        await finished(sup, first, other, again)
    assert yard.signed_in() == ["first", "lost", "other"]


async def test_a_worker_that_does_not_answer_holds_up_nobody_else(state_dir: Path, yard: Yard) -> None:
    async with Supervisor.open(state_dir, max_concurrent_runs=2) as sup:
        held = [await hold(sup, yard, name) for name in ("one", "two")]
        silent = await queue(sup, yard, "silent")
        others = [await queue(sup, yard, name) for name in ("other", "last")]
        worker = await worker_of(sup, silent.id)
        signal_process(worker, signal.SIGSTOP)
        yard.release("one")
        yard.release("two")
        await finished(sup, *held, *others)
        assert (await sup.inspect(silent.id)).state is RunState.STARTING
        await counts(sup, 1, 0)
    async with Supervisor.open(state_dir, max_concurrent_runs=1) as sup:  # it is told again
        signal_process(worker, signal.SIGCONT)
        await finished(sup, silent)
    assert sorted(yard.signed_in()) == ["last", "one", "other", "silent", "two"]


@pytest.mark.parametrize("limit", [1, None])
async def test_it_waits_for_the_next_owner(state_dir: Path, yard: Yard, limit: int | None) -> None:
    async with Supervisor.open(state_dir, max_concurrent_runs=2) as sup:
        held = [await hold(sup, yard, name) for name in ("one", "two")]
        waiting = [await queue(sup, yard, name) for name in ("three", "four")]
        worker = await worker_of(sup, waiting[0].id)
    async with Supervisor.open(state_dir, max_concurrent_runs=limit) as sup:
        if limit is None:
            await finished(sup, *waiting)
            yard.release("one")
        else:
            yard.release("one")
            await finished(sup, held[0])
            assert (await sup.inspect(waiting[0].id)).state is RunState.QUEUED  # two is over the limit still
            await rests(worker.pid)
        yard.release("two")
        await finished(sup, *held, *waiting)
    assert sorted(yard.signed_in()[2:]) == ["four", "three"]


async def test_the_host_is_killed_with_a_queue(state_dir: Path, tmp_path: Path, yard: Yard) -> None:
    """Whoever opens next starts them, with the environment they were given; nothing of it is on the disk."""
    code = f"""
    sup = await Supervisor.open(STATE, max_concurrent_runs=1)
    holder = ["sh", "-c", "while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"]
    runs = [(await sup.start(Command(argv=holder), request_id="first")).id]
    for name in ("b", "c"):
        command = Command(
            argv=["sh", "-c", 'echo "$1 $TOKEN" >> "$2"', "sh", name, "{yard.book}"],
            secret_env={{"TOKEN": "hidden-" + name}},
        )
        run = await sup.start(command, request_id=name, queue=True)
        assert run.state.value == "queued"
        runs.append(run.id)
    report(runs=runs)
    await stay()
    """
    with HostScript(code, state_dir, tmp_path) as script:
        runs = script.facts()["runs"]
    for path in state_dir.rglob("*"):
        assert path.is_dir() or path.is_socket() or b"hidden-" not in path.read_bytes(), path
    async with Supervisor.open(state_dir, max_concurrent_runs=1) as sup:
        assert (sup.capacity().held, sup.capacity().queued) == (1, 2)
        (tmp_path / "go").touch()
        for run in runs:
            assert (await sup.wait(run, timeout=PATIENCE)).state is RunState.FINISHED
    assert yard.book.read_text() == "b hidden-b\nc hidden-c\n"


async def test_a_shutdown_stops_the_queue_too(state_dir: Path, yard: Yard) -> None:
    async with Supervisor.open(state_dir, max_concurrent_runs=1) as sup:
        runs = [await hold(sup, yard, "first"), *[await queue(sup, yard, name) for name in ("two", "three")]]
        report = await sup.shutdown()
    assert sorted(report.stopped) == sorted(run.id for run in runs)
    assert report.unconfirmed == []
    async with Observer.open(state_dir) as observer:
        states = [(await observer.inspect(run.id)).state.value for run in runs]
    assert states == ["finished", "not_started", "not_started"]
    assert yard.signed_in() == ["first"]


async def test_its_time_counts_from_the_release(state_dir: Path, yard: Yard) -> None:
    async with Supervisor.open(state_dir, max_concurrent_runs=1) as sup:
        await hold(sup, yard, "first")
        asked = time.monotonic()
        run = await queue(sup, yard, "next", limits=Limits(timeout=4))
        eventually(lambda: time.monotonic() > asked + 4.1)  # longer than it may run
        yard.release("first")
        seen = await sup.wait(run.id, timeout=PATIENCE)
        assert seen.outcome is not None
        assert seen.outcome.kind is OutcomeKind.EXITED


async def test_a_stop_and_a_free_slot_at_once(state_dir: Path, yard: Yard) -> None:
    """One of them wins, in the worker: a run that was stopped in the queue has never been executed."""
    async with Supervisor.open(state_dir, max_concurrent_runs=1) as sup:
        for number in range(8):
            holder = await hold(sup, yard, f"holder-{number}")
            run = await queue(sup, yard, f"run-{number}")
            yard.release(f"holder-{number}")
            await finished(sup, holder)
            if number % 2:
                await in_state(sup, run.id, RunState.STARTING, RunState.RUNNING, RunState.FINISHED)
            receipt = await sup.stop(run.id, grace=0)
            seen = await sup.inspect(run.id)
            assert seen.state is receipt.state
            if seen.state is RunState.NOT_STARTED:
                assert (seen.reason, seen.retryable) == ("stopped", False)
                assert f"run-{number}" not in yard.signed_in()
            else:
                assert seen.state is RunState.FINISHED
                assert seen.program is not None
        assert sup.capacity().queued == 0


async def test_a_queue_survives_the_loss_of_the_journal(state_dir: Path, yard: Yard) -> None:
    async with Supervisor.open(state_dir, max_concurrent_runs=1) as sup:
        first = await hold(sup, yard, "first")
        runs = [await queue(sup, yard, name, priority=7) for name in ("two", "three")]
    for path in state_dir.glob("journal.db*"):
        path.unlink()
    async with refused(ErrorCode.JOURNAL_MISSING), Supervisor.open(state_dir):
        pass
    report: Any = await Supervisor.recover(state_dir)
    assert sorted(report["added"]) == sorted(run.id for run in (first, *runs))
    async with Supervisor.open(state_dir, max_concurrent_runs=1) as sup:
        for run in runs:
            again = await sup.start(yard.command(run.request_id), request_id=run.request_id)
            assert (again.id, again.admission) == (run.id, "existing")
        yard.release("first")
        await finished(sup, first, *runs)
    assert yard.signed_in() == ["first", "two", "three"]


async def test_an_observer_sees_a_dead_queue(state_dir: Path, yard: Yard) -> None:
    """No supervisor lives, and no worker: it never ran, and the same request may be sent again."""
    async with Supervisor.open(state_dir, max_concurrent_runs=1) as sup:
        await hold(sup, yard, "first")
        run = await queue(sup, yard, "next")
        worker = await worker_of(sup, run.id)
    signal_process(worker, signal.SIGKILL)
    eventually(lambda: not running(worker.pid))
    async with Observer.open(state_dir) as observer:
        seen = await in_state(observer, run.id, RunState.NOT_STARTED)
        assert (seen.reason, seen.retryable) == ("worker_lost", True)
    yard.release("first")
    async with Supervisor.open(state_dir, max_concurrent_runs=1) as sup:
        again = await sup.start(yard.command("next"), request_id="next", queue=True)
        assert (again.id, again.attempt, again.admission) == (run.id, 2, "retry")
        await finished(sup, again)
    assert yard.signed_in() == ["first", "next"]
