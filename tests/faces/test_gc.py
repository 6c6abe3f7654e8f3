"""Collecting runs, whoever answers."""

from __future__ import annotations

import json

from durable_supervisor import ErrorCode, Phase, RunState
from tests.contract.hosts import refused
from tests.faces.face import Face, refusing
from tests.gc.aging import HOUR, age


async def test_a_collected_run_answers_on_every_face(face: Face) -> None:
    label = ("gc", face.tag)
    run = await face.ask("once", ["sh", "-c", "echo hello; exit 3"], labels=dict([label]))
    await face.wait(run)
    await face.sup.reconcile()
    assert (await face.sup.gc(label=label)).count == 0  # too young
    age(face.state_dir, run_id=run.id)
    plan = await face.sup.gc(older_than=HOUR / 2, label=label)
    assert (plan.applied, plan.count, [one.run_id for one in plan.runs]) == (False, 1, [run.id])
    assert plan.bytes > 0
    assert [view.id for view in (await face.sup.list(label=label)).runs] == [run.id]
    done = await face.sup.gc(older_than=HOUR / 2, label=label, apply=True)
    assert (done.applied, done.runs, done.left) == (True, plan.runs, 0)

    seen = await face.sup.inspect(run.id)
    assert seen.outcome is not None
    assert (seen.state, seen.outcome.code, seen.argv, seen.labels) == (RunState.FINISHED, 3, (), {})
    assert seen.collected_ns is not None
    assert (await face.sup.wait(run.id)).outcome == seen.outcome
    again = await face.ask("once", ["sh", "-c", "echo hello; exit 3"])
    assert (again.id, again.admission) == (run.id, "existing")
    async with refused(ErrorCode.IDEMPOTENCY_CONFLICT):
        await face.ask("once", ["true"])
    assert run.id not in [view.id for view in (await face.sup.list(limit=1000)).runs]
    [listed] = [view for view in (await face.sup.list(limit=1000, collected=True)).runs if view.id == run.id]
    assert listed.collected_ns == seen.collected_ns
    details = {"run_id": run.id, "state": "finished", "outcome": seen.outcome.to_dict()}
    async with refusing(ErrorCode.RUN_COLLECTED, Phase.READ, details):
        await face.sup.events(run.id)
    async with refusing(ErrorCode.RUN_COLLECTED, Phase.READ, details):
        async for _ in face.sup.follow(run.id):
            pass
    json.dumps(done.to_dict())


async def test_a_criterion_is_needed_on_every_face(face: Face) -> None:
    async with refusing(ErrorCode.INVALID_REQUEST, Phase.VALIDATE, {"field": "gc"}):
        await face.sup.gc()
    async with refusing(ErrorCode.INVALID_REQUEST, Phase.VALIDATE, {"field": "keep"}):
        await face.sup.gc(keep=-1)
