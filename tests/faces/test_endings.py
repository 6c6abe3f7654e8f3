"""How runs end, what waiting for it answers, and what cannot be known."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

from durable_supervisor import ErrorCode, OnLimit, Phase, RunState, RunView
from durable_supervisor.process.signals import signal_process
from tests.contract.hosts import refused
from tests.contract.runs import Marker, appear
from tests.faces.face import Face, refusing
from tests.support import PATIENCE, eventually_async

ENDINGS: dict[str, tuple[dict[str, Any], tuple[str, int | None, int | None]]] = {
    "exit 0": ({}, ("exited", 0, None)),
    "exit 42": ({}, ("exited", 42, None)),
    "kill -KILL $$": ({}, ("signaled", None, signal.SIGKILL)),
    "exec sleep 60": ({"timeout": 0.3}, ("timed_out", None, signal.SIGTERM)),
    "echo on; exec sleep 60": ({"idle_timeout": 0.3}, ("idle_timed_out", None, signal.SIGTERM)),
    "exec yes": (
        {"max_stdout_bytes": 4096, "on_limit": OnLimit.TERMINATE},
        ("stdout_limit_exceeded", None, signal.SIGTERM),
    ),
    "exec yes >&2": (
        {"max_stderr_bytes": 4096, "on_limit": OnLimit.TERMINATE},
        ("stderr_limit_exceeded", None, signal.SIGTERM),
    ),
}


async def test_every_kind_of_end(face: Face) -> None:
    runs = [await face.sh(script, **limits) for script, (limits, _) in ENDINGS.items()]
    views = await asyncio.gather(*(face.wait(run) for run in runs))
    for view, (script, (_, expected)) in zip(views, ENDINGS.items(), strict=True):
        assert view.state is RunState.FINISHED
        assert view.outcome is not None
        assert (view.outcome.kind, view.outcome.code, view.outcome.signal) == expected, script
        assert view.receipt is not None
        assert view.receipt["survivors"] == []
        assert view.head == (await face.sup.events(view.id)).head


async def test_waiting_has_a_bound(face: Face) -> None:
    run = await face.start(["sleep", "60"])
    state = {"run_id": run.id, "state": "running"}
    async with refusing(ErrorCode.WAIT_TIMEOUT, Phase.RUN, state, retryable=True):
        await face.wait(run, timeout=0.1)
    await face.sup.stop(run.id)


async def test_with_the_tree_a_run_ends_with_its_last_process(face: Face, marker: Marker) -> None:
    run = await face.sh(f"sleep {marker} & exit 5", completion="tree")
    appear(marker, 1)
    await face.event(run, "program.exited")
    assert (await face.sup.inspect(run.id)).state is RunState.RUNNING
    marker.kill()
    outcome = (await face.wait(run)).outcome
    assert outcome is not None
    assert outcome.code == 5


async def lost(face: Face) -> str:
    """A run whose program lives, and whose worker was killed."""
    run = await face.start(["sleep", "60"])
    signal_process(await face.worker(run.id), signal.SIGKILL)

    await quarantined(face, run.id)
    return run.id


async def quarantined(face: Face, run: str) -> RunView:
    """Once it is seen as that; as long as the worker is dying, a look may still find it running."""

    async def seen() -> RunView | None:
        view = await face.sup.inspect(run)
        return view if view.state is RunState.QUARANTINED else None

    found: RunView = await eventually_async(seen)
    return found


async def test_a_lost_worker_makes_no_outcome(face: Face) -> None:
    run = await lost(face)
    async with refused(ErrorCode.OUTCOME_UNKNOWN) as caught:
        await face.sup.wait(run, timeout=PATIENCE)
    error, seen = caught(), await quarantined(face, run)
    assert (error.phase, error.retryable) == (Phase.RUN, False)
    evidence: Any = error.details.pop("evidence")
    assert error.details == {"run_id": run, "state": "quarantined", "reason": "program_alive"}
    assert seen.reason == "program_alive"
    assert set(evidence) == set(seen.evidence or {})
    assert (evidence["row"], evidence["may_be_alive"]) == (12, True)
    assert (seen.outcome, seen.receipt, seen.retryable) == (None, None, False)
    program = int(str((seen.program or {})["pid"]))
    os.kill(program, 0)  # nobody has touched it
    async with refusing(ErrorCode.NOT_RUNNING, Phase.CONTROL, {"run_id": run, "state": "quarantined"}):
        await face.sup.stop(run)
    resolved = await face.sup.resolve(run, "kill", note="its worker was killed")
    assert (resolved.state, resolved.outcome) == (RunState.UNKNOWN, None)
    assert (resolved.resolution or {})["note"] == "its worker was killed"
    await eventually_async(lambda: not os.path.exists(f"/proc/{program}/exe"))
    async with refused(ErrorCode.OUTCOME_UNKNOWN) as caught:
        await face.sup.wait(run)
    assert caught().details["state"] == "unknown"


async def test_what_is_known_needs_no_word(face: Face) -> None:
    run = await face.start(["true"])
    await face.wait(run)
    async with refusing(ErrorCode.NOT_RESOLVABLE, Phase.CONTROL, {"run_id": run.id, "state": "finished"}):
        await face.sup.resolve(run.id)


async def test_judging_changes_nothing_that_is_well(face: Face) -> None:
    run = await face.start(["sleep", "60"])
    report = await face.sup.reconcile()
    assert report.judged >= 1
    assert run.id not in report.changed or report.changed[run.id] == "running"
    await face.sup.stop(run.id)


async def test_closing_a_face_leaves_runs_alone(face: Face, marker: Marker) -> None:
    run = await face.sh(f"exec sleep {marker}")
    appear(marker, 1)
    async with refused(ErrorCode.SUPERVISOR_CLOSED):
        await face.sup.close()
        await face.sup.inspect(run.id)
    assert len(marker.alive()) == 1
    marker.kill()
