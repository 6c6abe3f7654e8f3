"""Stop means the whole tree, whatever it does to get away, and says truthfully how it came out."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from durable_supervisor.model.errors import ErrorCode, SupervisorError
from durable_supervisor.model.events import Kind
from durable_supervisor.model.outcome import Outcome, OutcomeKind
from durable_supervisor.model.states import RunState
from durable_supervisor.process.signals import signal_process
from durable_supervisor.supervisor.observer import Observer
from tests.contract.runs import Marker, Runs, appear, gone, open_runs, state_of
from tests.support import PATIENCE, eventually, eventually_async

DAEMON = """
import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for fd in (0, 1, 2):
            os.close(fd)
        os.execvp("sleep", ["sleep", sys.argv[1]])
    os._exit(0)
os.wait()
"""


async def stopped(runs: Runs, run: str, **options: float) -> Outcome:
    receipt = await runs.sup.stop(run, **options)
    assert receipt.confirmed
    assert receipt.outcome is not None
    return receipt.outcome


@pytest.mark.parametrize(
    ("script", "count"),
    [
        ("sleep {m} & sleep {m} & wait", 3),
        ("setsid sleep {m} & sleep 1000 # {m}", 2),
        ("setsid setsid sh -c 'sleep {m}; :' & exec sleep {m}", 3),
        ("(sleep {m}; :) | (sleep {m}; :) | (sleep {m}; :)", 4),
        ("set -m; sleep {m} & sleep {m} & wait", 3),  # each job in a group of its own
        ("nohup sleep {m} >/dev/null 2>&1 & sleep {m}", 2),
    ],
)
async def test_no_survivors(runs: Runs, marker: Marker, script: str, count: int) -> None:
    run = await runs.sh(script.format(m=marker))
    appear(marker, count)
    outcome = await stopped(runs, run.id)
    gone(marker)
    assert outcome == Outcome(OutcomeKind.CANCELLED, signal=signal.SIGTERM)
    assert (await runs.receipt(run))["cleanup_confirmed"] is True


async def test_a_daemon_that_left_its_session_is_stopped_too(runs: Runs, marker: Marker) -> None:
    script = DAEMON + "import time; time.sleep(3131)"
    run = await runs.start(["python3", "-I", "-S", "-c", script, str(marker)])
    appear(marker, 2)
    await stopped(runs, run.id)
    gone(marker)


async def test_a_daemon_is_stopped_after_its_leader_died_and_its_host_restarted(
    state_dir: Path, marker: Marker
) -> None:
    async with open_runs(state_dir) as first:
        run = await first.start(["python3", "-I", "-S", "-c", DAEMON, str(marker)], completion="tree")
        await first.event(run, Kind.PROGRAM_EXITED)
        assert len(marker.alive()) == 1
    async with open_runs(state_dir) as second:
        assert (await second.sup.inspect(run.id)).state is RunState.RUNNING
        outcome = await stopped(second, run.id)
    gone(marker)
    assert outcome == Outcome(OutcomeKind.CANCELLED, code=0)


async def test_deafness_to_term_costs_the_grace_and_is_told(runs: Runs, marker: Marker) -> None:
    run = await runs.sh(f"trap '' TERM HUP INT; echo ready; while :; do sleep .2; done # {marker}")
    await runs.printed(run, b"ready")
    outcome = await stopped(runs, run.id, grace=0.5)
    gone(marker)
    assert outcome == Outcome(OutcomeKind.CANCELLED, signal=signal.SIGKILL)
    first, second, *_ = await runs.events(run, kinds={Kind.PROGRAM_SIGNALLED})
    assert [one.detail["name"] for one in (first, second)] == ["SIGTERM", "SIGKILL"]
    assert second.elapsed_ns - first.elapsed_ns >= 490_000_000, "no sooner than the grace, by the log"
    stop = (await runs.receipt(run))["stop"]
    assert stop["escalated"] is True
    assert stop["grace"] == 0.5


async def test_obedience_is_cancelled_with_its_own_exit_code(runs: Runs, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    script = f"trap 'echo saved > {saved}; exit 0' TERM; echo ready; while :; do sleep .05; done"
    run = await runs.sh(script, grace=PATIENCE)
    await runs.printed(run, b"ready")
    outcome = await stopped(runs, run.id)
    assert saved.read_text() == "saved\n"
    assert outcome == Outcome(OutcomeKind.CANCELLED, code=0)
    assert (await runs.receipt(run))["stop"]["escalated"] is False


async def test_the_leaders_obedience_is_not_the_end(runs: Runs, marker: Marker) -> None:
    run = await runs.sh(
        f"trap 'exit 0' TERM; (trap '' TERM; echo ready; while :; do sleep .1; done) & wait # {marker}"
    )
    await runs.printed(run, b"ready")
    stopping = asyncio.create_task(stopped(runs, run.id, grace=PATIENCE))
    await runs.event(run, Kind.PROGRAM_EXITED)
    assert marker.alive()
    await runs.sup.stop(run.id, grace=0)
    outcome = await stopping
    gone(marker)
    assert outcome == Outcome(OutcomeKind.CANCELLED, code=0)


async def test_grace_zero_kills_at_once(runs: Runs, marker: Marker) -> None:
    run = await runs.sh(f"trap 'echo heard' TERM; echo ready; while :; do sleep .05; done # {marker}")
    await runs.printed(run, b"ready")
    assert await stopped(runs, run.id, grace=0) == Outcome(OutcomeKind.CANCELLED, signal=signal.SIGKILL)
    gone(marker)
    assert await runs.output(run) == b"ready\n"


async def test_an_impatient_second_stop_shortens_the_grace(runs: Runs, marker: Marker) -> None:
    run = await runs.sh(f"trap '' TERM; echo ready; while :; do sleep .1; done # {marker}", grace=60)
    await runs.printed(run, b"ready")
    patient = asyncio.create_task(runs.sup.stop(run.id))
    await runs.event(run, Kind.RUN_STOPPING)
    hasty = await runs.sup.stop(run.id, grace=0)
    first = await patient
    gone(marker)
    assert (first.result, hasty.result) == ("stopping", "already_stopping")
    assert first.outcome == hasty.outcome == Outcome(OutcomeKind.CANCELLED, signal=signal.SIGKILL)


async def test_two_stops_at_once_get_a_receipt_each(runs: Runs, marker: Marker) -> None:
    script = f"trap 'sleep .2; exit 3' TERM; echo ready; while :; do sleep .05; done # {marker}"
    run = await runs.sh(script, grace=PATIENCE)
    await runs.printed(run, b"ready")
    receipts = await asyncio.gather(*(runs.sup.stop(run.id) for _ in range(2)))
    gone(marker)
    assert sorted(one.result for one in receipts) == ["already_stopping", "stopping"]
    assert len({one.control_id for one in receipts}) == 2
    assert {one.outcome for one in receipts} == {Outcome(OutcomeKind.CANCELLED, code=3)}
    kinds = await runs.kinds(run)
    assert kinds.count(Kind.RUN_STOPPING) == kinds.count(Kind.RUN_FINISHED) == 1
    assert kinds.count(Kind.CONTROL_RECEIVED) == kinds.count(Kind.CONTROL_APPLIED) == 2


async def test_a_stop_after_the_end_rewrites_nothing(runs: Runs) -> None:
    run = await runs.sh("exit 7")
    before = await runs.wait(run)
    log = await runs.events(run)
    receipt = await runs.sup.stop(run.id)
    assert (receipt.result, receipt.confirmed) == ("already_ended", True)
    assert receipt.outcome == Outcome(OutcomeKind.EXITED, code=7)
    after = await runs.sup.inspect(run.id)
    assert (after.outcome, after.receipt, after.state) == (before.outcome, before.receipt, before.state)
    assert await runs.events(run) == log


async def test_a_stop_of_leftovers_does_not_change_the_outcome(runs: Runs, marker: Marker) -> None:
    run = await runs.sh(f"(trap '' TERM; sleep {marker}; sleep {marker}) & exit 4", grace=60)
    await runs.event(run, Kind.RUN_STOPPING)
    receipt = await runs.sup.stop(run.id, grace=0)
    gone(marker)
    assert receipt.result == "already_ended"
    assert receipt.outcome == Outcome(OutcomeKind.EXITED, code=4)
    assert (await runs.receipt(run))["stop"] is None


async def first_id(obs: Observer) -> str:
    return "".join(one.id for one in (await obs.list()).runs)


async def test_a_stop_during_the_start(runs: Runs, marker: Marker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker stands still with its program forked and not released; the stop waits for it."""
    monkeypatch.setenv("DURABLE_SUPERVISOR_FAILPOINTS", "worker.spawned=pause")
    starting = asyncio.create_task(runs.sh(f"sleep {marker}"))
    async with Observer.open(runs.state_dir) as obs:
        run_id = await eventually_async(lambda: first_id(obs))
        worker = await runs.worker(run_id)
        eventually(lambda: state_of(worker.pid) == "T")
        stopping = asyncio.create_task(obs.stop(run_id, timeout=PATIENCE))
        await asyncio.sleep(0)
        signal_process(worker, signal.SIGCONT)
        receipt = await stopping
    await starting
    gone(marker)
    assert receipt.confirmed
    assert receipt.outcome == Outcome(OutcomeKind.CANCELLED, signal=signal.SIGTERM)


async def test_a_stopped_tree_ends_within_the_grace(runs: Runs, marker: Marker) -> None:
    run = await runs.sh(f"sleep {marker} & sleep {marker}")
    appear(marker, 3)

    async def all_stand_still() -> bool:
        # A signal reaches who is there: a child that is being forked may come after it.  And a shell
        # waits in the kernel (D) for a child of vfork(2) that was stopped before its exec.
        await runs.sup.signal(run.id, signal.SIGCONT, target="tree")
        await runs.sup.signal(run.id, signal.SIGSTOP, target="tree")
        return {state_of(pid) for pid in marker.alive()} == {"T"}

    await eventually_async(all_stand_still)
    # By the TERM, which nobody who stands still would hear of: not by the KILL at the end of the grace.
    assert await stopped(runs, run.id, grace=30) == Outcome(OutcomeKind.CANCELLED, signal=signal.SIGTERM)
    gone(marker)


async def test_a_stopped_worker_is_not_confirmed_and_not_dead(runs: Runs, marker: Marker) -> None:
    run = await runs.sh(f"sleep {marker}")
    appear(marker, 1)
    # Its socket is there: the kernel takes the connection, and nobody answers.
    await runs.sup.signal(run.id, signal.SIGCONT)
    worker = await runs.worker(run.id)
    signal_process(worker, signal.SIGSTOP)
    with pytest.raises(SupervisorError) as caught:
        await runs.sup.stop(run.id, timeout=0.4)
    assert caught.value.code is ErrorCode.NOT_CONFIRMED
    assert (await runs.sup.inspect(run.id)).state is RunState.RUNNING
    assert marker.alive()
    await runs.sup.reconcile()
    assert (await runs.sup.inspect(run.id)).state is RunState.RUNNING
    signal_process(worker, signal.SIGCONT)
    seen = await runs.wait(run)  # what was asked before the pause is done after it
    assert seen.outcome == Outcome(OutcomeKind.CANCELLED, signal=signal.SIGTERM)
    gone(marker)


async def test_a_terminated_worker_stops_its_run_and_says_so(runs: Runs, marker: Marker) -> None:
    run = await runs.sh(f"sleep {marker} & sleep {marker}")
    appear(marker, 3)
    worker = await runs.worker(run.id)
    signal_process(worker, signal.SIGTERM)
    receipt = await runs.receipt(run)
    gone(marker)
    assert receipt["outcome"] == {"kind": "cancelled", "code": None, "signal": 15}
    assert receipt["stop"]["reason"] == "worker_terminated"


async def test_what_kills_its_own_group_does_not_reach_the_worker(runs: Runs, marker: Marker) -> None:
    run = await runs.sh(f"trap 'kill 0' EXIT; sleep {marker} & echo over")
    receipt = await runs.receipt(run)
    gone(marker)
    assert receipt["outcome"] == {"kind": "signaled", "code": None, "signal": 15}
    assert receipt["incomplete"] is False


async def test_a_shutdown_is_bounded_and_names_what_it_could_not_confirm(runs: Runs, marker: Marker) -> None:
    obedient, stuck = await runs.sh(f"sleep {marker}"), await runs.sh(f"sleep {marker}")
    appear(marker, 2)
    await runs.sup.signal(stuck.id, signal.SIGCONT)  # so it listens
    worker = await runs.worker(stuck.id)
    signal_process(worker, signal.SIGSTOP)
    async with asyncio.timeout(60):
        report = await runs.sup.shutdown(timeout=5)  # which the obedient one needs a hundredth of
    assert (report.stopped, report.unconfirmed) == ([obedient.id], [stuck.id])
    signal_process(worker, signal.SIGCONT)
    eventually(lambda: not marker.alive())


# Completion.


async def test_the_leaders_exit_is_told_at_once_and_the_rest_ended(runs: Runs, marker: Marker) -> None:
    run = await runs.sh(f"sleep {marker} >/dev/null 2>&1 & echo done")
    receipt = await runs.receipt(run)
    gone(marker)
    assert receipt["outcome"] == {"kind": "exited", "code": 0, "signal": None}
    assert receipt["stop"] is None
    events = {one.kind: one for one in await runs.events(run)}
    assert events[Kind.RUN_STOPPING].detail["reason"] == "leftover"
    assert len(events[Kind.PROGRAM_SIGNALLED].detail["pids"]) == 1  # type: ignore[arg-type]


async def test_a_held_pipe_delays_the_end_by_no_more_than_the_drain(runs: Runs, marker: Marker) -> None:
    run = await runs.sh(f"setsid sleep {marker} & exit 0", timeout=600)
    receipt = await runs.receipt(run)
    gone(marker)
    assert receipt["outcome"]["kind"] == "exited"


async def test_with_tree_completion_the_run_lasts_until_the_tree_is_empty(runs: Runs, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    run = await runs.sh(f"(read line < {gate}; echo later) & exit 5", completion="tree")
    exited = await runs.event(run, Kind.PROGRAM_EXITED)
    assert exited.detail["code"] == 5
    assert (await runs.sup.inspect(run.id)).state is RunState.RUNNING
    with gate.open("w") as file:
        file.write("go\n")
    receipt = await runs.receipt(run)
    assert receipt["outcome"] == {"kind": "exited", "code": 5, "signal": None}
    assert await runs.output(run) == b"later\n"
    assert (await runs.kinds(run)).count(Kind.RUN_STOPPING) == 0


async def test_a_tree_that_outlives_its_leader_can_be_timed_out(runs: Runs, marker: Marker) -> None:
    run = await runs.sh(f"sleep {marker} >/dev/null & exit 0", completion="tree", timeout=2)
    receipt = await runs.receipt(run)
    gone(marker)
    assert receipt["outcome"] == {"kind": "timed_out", "code": 0, "signal": None}
