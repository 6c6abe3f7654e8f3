"""A policy and limits for the kernel, whoever is asked to start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from durable_supervisor import Command, ErrorCode, Grant, Limits, Phase, Policy
from durable_supervisor.model.enforcement import AXES, axis_report, unconfined
from tests.contract.hosts import refused
from tests.faces.face import Face, refusing


async def test_what_is_asked_for_is_enforced_and_told(face: Face) -> None:
    policy = Policy(network="none", filesystem=[Grant("/tmp")])
    command = Command(argv=["sh", "-c", "ulimit -n"], cwd="/tmp")
    run = await face.sup.start(command, policy=policy, limits=Limits(max_open_files=50))
    seen = await face.wait(run)
    assert seen.policy == policy.to_dict()
    assert seen.limits["max_open_files"] == 50
    assert await face.output(run) == b"50\n"
    report: Any = (seen.receipt or {})["enforcement"]
    assert report["open_files"]["applied"] == "full"
    assert report["network"]["requested"] == "none"
    (confined,) = [event for event in await face.events(run) if event.kind == "program.confined"]
    told: Any = confined.detail["enforcement"]
    assert told["network"] == report["network"]


async def test_of_a_run_without_policy_every_axis_is_told_and_little_kept(face: Face) -> None:
    run = await face.ask("plain", ["true"])
    report: Any = ((await face.wait(run)).receipt or {})["enforcement"]
    assert list(report) == list(AXES)
    assert [axis for axis, told in report.items() if told != axis_report(None)] == ["tree"]
    kept: Any = (await face.events(run))[-1].detail["enforcement"]
    assert kept == unconfined() == {"tree": report["tree"]}


async def test_another_policy_is_another_request(face: Face) -> None:
    command = Command(argv=["true"])
    run = await face.sup.start(command, request_id=face.id("one"), policy=Policy())
    conflict = {"run_id": run.id, "fields": ["policy"]}
    async with refusing(ErrorCode.IDEMPOTENCY_CONFLICT, Phase.ADMIT, conflict):
        await face.sup.start(command, request_id=face.id("one"), policy=Policy(network="none"))


async def test_a_grant_that_is_missing_is_named(face: Face, tmp_path: Path) -> None:
    policy = Policy(filesystem=[Grant(tmp_path / "missing")])
    async with refused(ErrorCode.INVALID_REQUEST) as caught:
        await face.sup.start(Command(argv=["true"], cwd=tmp_path), request_id=face.id("x"), policy=policy)
    assert caught().details == {"field": "policy.filesystem"}
    assert (await face.sup.start(Command(argv=["true"]), request_id=face.id("x"))).admission == "new"
