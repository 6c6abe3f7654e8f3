"""How many runs hold a slot at once, and what a start is told that finds none."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from durable_supervisor import Command, ErrorCode, RunState, Supervisor, SupervisorError
from durable_supervisor.model.identity import identity_of
from durable_supervisor.process.signals import signal_process
from durable_supervisor.supervisor.admission.admission import Host
from tests.contract.hosts import refused, tree_of
from tests.contract.lines import Yard, counts, finished, hold, in_state, queue
from tests.support import PATIENCE, eventually_async

FULL = ErrorCode.CAPACITY_EXHAUSTED


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return Yard(tmp_path)


async def test_ended_runs_are_folded_with_each_other_and_free_their_slots(state_dir: Path) -> None:
    """Also where no limit makes anybody wait for that; afterwards nothing is left to wake the loop."""
    async with Supervisor.open(state_dir) as sup:
        runs = [await sup.start(Command(argv=["true"])) for _ in range(5)]
        assert [(await sup.wait(run.id)).state for run in runs] == [RunState.FINISHED] * len(runs)
        await eventually_async(lambda: sup.capacity().held == 0)
        assert len((await sup.list(states=[RunState.FINISHED])).runs) == len(runs)
        await eventually_async(lambda: sup._endings._timer is None)
        assert sup._reconciler._gathering is None
        assert sup._journal._later is None


async def test_a_refusal_writes_nothing_and_spends_no_id(state_dir: Path, yard: Yard) -> None:
    async with Supervisor.open(state_dir, max_concurrent_runs=1) as sup:
        first = await hold(sup, yard, "first")
        await eventually_async(lambda: yard.signed_in() == ["first"])
        await sup.reconcile()  # what is known by now is folded
        before = tree_of(state_dir)
        for _ in range(3):
            async with refused(FULL) as caught:
                await sup.start(yard.command("second"), request_id="second")
            assert caught().retryable
            assert caught().details == {"scope": "host", "limit": 1, "held": 1}
        after = tree_of(state_dir)
        assert set(after) == set(before)
        assert [run.id for run in (await sup.list()).runs] == [first.id]
        assert (sup.capacity().held, sup.capacity().queued) == (1, 0)
        yard.release("first")
        await finished(sup, first)
        second = await sup.start(yard.command("second"), request_id="second")
        assert (second.admission, second.attempt) == ("new", 1)
        await finished(sup, second)
    assert yard.signed_in() == ["first", "second"]


async def test_a_known_request_is_answered_whatever_the_limits_are_now(state_dir: Path, yard: Yard) -> None:
    async with Supervisor.open(state_dir, max_concurrent_runs=2) as sup:
        held = [await hold(sup, yard, name) for name in ("one", "two")]
        waiting = await queue(sup, yard, "three")
    async with Supervisor.open(state_dir, max_concurrent_runs=1, max_queued_runs=0) as sup:
        assert (sup.capacity().held, sup.capacity().queued) == (2, 1)
        for run in held:
            again = await sup.start(yard.holder(run.request_id), request_id=run.request_id)
            assert (again.id, again.admission, again.state) == (run.id, "existing", RunState.RUNNING)
        again = await sup.start(yard.command("three"), request_id="three")
        assert (again.id, again.admission, again.state) == (waiting.id, "existing", RunState.QUEUED)
        async with refused(FULL):
            await sup.start(yard.command("four"), request_id="four")
        async with refused(FULL) as caught:
            await sup.start(yard.command("four"), request_id="four", queue=True)
        assert caught().details == {"scope": "queue", "limit": 0, "held": 1}
        async with refused(ErrorCode.IDEMPOTENCY_CONFLICT):
            await sup.start(yard.command("other"), request_id="three")
        yard.release("one")
        await finished(sup, held[0])
        assert (await sup.inspect(waiting.id)).state is RunState.QUEUED  # one still holds a slot
        yard.release("two")
        await finished(sup, held[1], waiting)


async def test_parallel_starts_never_exceed_the_limit(state_dir: Path, yard: Yard) -> None:
    async with Supervisor.open(state_dir, max_concurrent_runs=3) as sup:
        names = [f"run-{number}" for number in range(12)]
        answers = await asyncio.gather(
            *(sup.start(yard.holder(name), request_id=name) for name in names), return_exceptions=True
        )
        refusals = [one for one in answers if isinstance(one, SupervisorError)]
        assert {one.code for one in refusals} == {FULL}
        assert len(refusals) == 9
        assert sup.capacity().held == len((await sup.list()).runs) == 3
        for name in names:
            yard.release(name)


async def test_a_run_that_is_over_frees_its_slot_at_once(state_dir: Path) -> None:
    async with Supervisor.open(state_dir, max_concurrent_runs=1) as sup:
        for _ in range(15):
            run = await sup.start(Command(argv=["true"]))
            await sup.wait(run.id, timeout=PATIENCE)
        for _ in range(3):
            run = await sup.start(Command(argv=["/nonexistent"]), request_id="again")
            assert run.state is RunState.NOT_STARTED
        assert sup.capacity().held == 0


async def test_an_adopted_run_that_is_over_frees_its_slot_at_once(state_dir: Path, yard: Yard) -> None:
    async with Supervisor.open(state_dir) as sup:
        run = await hold(sup, yard, "one")
    async with Supervisor.open(state_dir, max_concurrent_runs=1) as sup:
        yard.release("one")
        await finished(sup, run)
        await finished(sup, await sup.start(Command(argv=["true"])))


async def test_each_owner_has_a_limit_of_its_own(state_dir: Path, yard: Yard) -> None:
    async with Supervisor.open(state_dir, max_concurrent_runs=2, max_runs_per_owner=1) as sup:
        await hold(sup, yard, "a-1", owner="a")
        async with refused(FULL) as caught:
            await sup.start(yard.command("a-2"), request_id="a-2", owner="a")
        assert caught().details == {"scope": "owner", "limit": 1, "held": 1}
        await hold(sup, yard, "b-1", owner="b")
        async with refused(FULL) as caught:
            await sup.start(yard.command("c-1"), request_id="c-1", owner="c")
        assert caught().details["scope"] == "host"
        for name in ("a-1", "b-1"):
            yard.release(name)


@pytest.mark.parametrize("word", ["kill", "accept"])
async def test_what_may_be_alive_holds_its_slot_until_it_is_resolved(
    state_dir: Path, yard: Yard, word: str
) -> None:
    async with Supervisor.open(state_dir, max_concurrent_runs=1) as sup:
        run = await hold(sup, yard, "lost")
        worker = identity_of((await sup.inspect(run.id)).worker)
        assert worker is not None
        signal_process(worker, signal.SIGKILL)
        await in_state(sup, run.id, RunState.QUARANTINED)
        async with refused(FULL):
            await sup.start(Command(argv=["true"]))
        yard.release("lost")
        await in_state(sup, run.id, RunState.UNKNOWN)  # its own end is not all that may be left of it
        async with refused(FULL):
            await sup.start(Command(argv=["true"]))
    async with Supervisor.open(state_dir, max_concurrent_runs=1) as sup:
        assert sup.capacity().held == 1
        waiting = await queue(sup, yard, "next")
        await sup.resolve(run.id, word)
        await finished(sup, waiting)
        await counts(sup, 0, 0)


async def test_a_caller_may_be_another_process(state_dir: Path, tmp_path: Path) -> None:
    """Its environment, directory and umask count then, and the request is the same from anywhere."""
    environ = {"PATH": os.defpath, "HOME": "/srv/caller", "CHOSEN": "x"}
    host = Host(environ, str(tmp_path), 0o027, None, None)
    script = 'umask; pwd; echo "$HOME $CHOSEN"'
    command = Command(argv=["sh", "-c", script], inherit_env=("CHOSEN",))
    async with Supervisor.open(state_dir) as sup:
        run = await sup.start(command, request_id="theirs", host=host)
        await finished(sup, run)
        output = [event.data for event in (await sup.events(run.id)).events]
        assert b"".join(output) == f"0027\n{tmp_path}\n/srv/caller x\n".encode()
        again = await sup.start(command, request_id="theirs", host=host)
        assert (again.id, again.admission) == (run.id, "existing")


@pytest.mark.parametrize(
    ("name", "value"),
    [("priority", 101), ("priority", -101), ("priority", 1.0), ("priority", True), ("queue", 1)],
)
async def test_a_place_in_the_queue_is_checked(state_dir: Path, name: str, value: Any) -> None:
    async with Supervisor.open(state_dir) as sup:
        async with refused(ErrorCode.INVALID_REQUEST) as caught:
            await sup.start(Command(argv=["true"]), **{name: value})
        assert caught().details == {"field": name}
        assert not (await sup.list()).runs


async def test_limits_are_checked_before_anything_is_opened(state_dir: Path) -> None:
    async with refused(ErrorCode.INVALID_REQUEST), Supervisor.open(state_dir, max_concurrent_runs=0):
        pass
    assert list(state_dir.iterdir()) == []
