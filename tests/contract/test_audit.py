"""`audit` finds what is stored about a run, of live and finished ones, and in bundles."""

from __future__ import annotations

import base64
import json

import pytest

import durable_supervisor
from durable_supervisor import Command, Observer
from durable_supervisor.model.audit import AuditReport
from durable_supervisor.model.errors import ErrorCode, SupervisorError
from durable_supervisor.process.locks import LockState, probe_lock
from tests.contract.runs import Runs
from tests.support import eventually

SECRET = "correct-horse-battery-staple"


def found(report: AuditReport) -> set[tuple[str, str, str]]:
    assert SECRET not in json.dumps(report.to_dict())
    return {(place.where, place.form, place.field) for place in report.places}


async def test_a_run_that_kept_its_secret_is_clean(runs: Runs) -> None:
    run = await runs.sh('echo "$KEY"; echo "$KEY" >&2', secret_env={"KEY": SECRET})
    await runs.wait(run)
    report = await runs.sup.audit(run.id, [SECRET])
    assert report.clean
    assert report.found == 0
    assert report.events > 5
    assert report.bytes > 1000


async def test_arguments_and_both_streams(runs: Runs) -> None:
    encoded = base64.b64encode(f"key={SECRET}".encode()).decode()
    half = len(SECRET) // 2
    pieces = f"printf {SECRET[:half]}; sleep 0.05; printf {SECRET[half:]}"
    run = await runs.sh(f"{pieces}; echo {encoded} >&2")
    await runs.wait(run)
    report = await runs.sup.audit(run.id, ["nothing-like-this", SECRET])
    assert not report.clean
    assert {place.secret for place in report.places} == {2}
    assert found(report) >= {
        ("output", "plain", "stdout"),
        ("output", "base64", "stderr"),
        ("event", "base64", "argv[2]"),
        ("header", "base64", "argv[2]"),
        ("journal", "base64", "run.argv[2]"),
    }


async def test_a_live_run_and_an_observer(runs: Runs) -> None:
    run = await runs.start(["sh", "-c", 'echo "$1"; exec sleep 60', "sh", SECRET])
    await runs.printed(run, SECRET.encode())
    told: list[tuple[int, int]] = []
    async with Observer.open(runs.state_dir) as observer:
        report = await observer.audit(run.id, [SECRET], tell=lambda done, of: told.append((done, of)))
    await runs.sup.stop(run.id, grace=0)
    assert ("output", "plain", "stdout") in found(report)
    assert ("event", "plain", "argv[4]") in found(report)
    assert told
    assert told[-1][0] == told[-1][1]


async def test_labels_of_a_session(runs: Runs) -> None:
    run = await runs.sup.start(Command(argv=["true"]), labels={"note": f"see {SECRET}"})
    await runs.sup.wait(run.id)
    await runs.sup.close()
    session = await durable_supervisor.open(runs.state_dir)
    try:
        report = await session.audit(run.id, [SECRET])
    finally:
        await session.close()
    assert found(report) >= {("header", "plain", "labels.note"), ("journal", "plain", "run.labels.note")}


async def test_what_is_left_of_a_damaged_record(runs: Runs) -> None:
    """Bytes of a file that belong to no event any more."""
    run = await runs.sh("true")
    await runs.wait(run)
    log = next(runs.state_dir.glob(f"runs/*/{run.id}.a1.log"))
    eventually(lambda: probe_lock(str(log)) is LockState.FREE)  # its worker gives back what it had reserved
    with log.open("ab") as file:
        file.write(b"\0" * 40 + SECRET.encode())
    report = await runs.sup.audit(run.id, [SECRET])
    assert found(report) == {("file", "plain", log.name)}


async def test_a_lost_log_is_not_clean(runs: Runs) -> None:
    run = await runs.sh("true")
    await runs.wait(run)
    next(runs.state_dir.glob(f"runs/*/{run.id}.a1.log")).unlink()
    report = await runs.sup.audit(run.id, [SECRET])
    assert (report.clean, report.found, len(report.problems)) == (False, 0, 1)


async def test_short_ones_are_refused(runs: Runs) -> None:
    run = await runs.sh("true")
    with pytest.raises(SupervisorError) as refused:
        await runs.sup.audit(run.id, ["1234567"])
    assert refused.value.code is ErrorCode.INVALID_REQUEST
