"""A request id stands for one run, for ever, whoever is asked."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from durable_supervisor import Command, ErrorCode, Kind, Limits, Phase, RunState
from tests.faces.face import Face, refusing


async def test_a_request_id_runs_once(face: Face, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    argv = ["sh", "-c", f"echo ran >> {ran}; exit 3"]
    first = await face.ask("once", argv)
    assert (first.admission, first.attempt, first.request_id) == ("new", 1, face.id("once"))
    await face.wait(first)
    for _ in range(3):
        again = await face.ask("once", argv)
        assert (again.id, again.admission, again.attempt) == (first.id, "existing", 1)
    assert again.state is RunState.FINISHED
    assert ran.read_text() == "ran\n"


async def test_many_askers_at_once_get_one_run(face: Face, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    argv = ["sh", "-c", f"echo ran >> {ran}"]
    answers = await asyncio.gather(*(face.ask("rush", argv) for _ in range(8)))
    assert len({run.id for run in answers}) == 1
    assert sorted(run.admission for run in answers) == ["existing"] * 7 + ["new"]
    await face.wait(answers[0])
    assert ran.read_text() == "ran\n"


async def test_another_request_under_the_same_id_names_what_differs(face: Face) -> None:
    command = Command(argv=["true"], env={"A": "1"})
    run = await face.sup.start(command, request_id=face.id("same"))
    conflict = {"run_id": run.id, "fields": ["argv", "env", "limits", "completion"]}
    async with refusing(ErrorCode.IDEMPOTENCY_CONFLICT, Phase.ADMIT, conflict):
        await face.sup.start(
            Command(argv=["false"], env={"A": "2"}),
            request_id=face.id("same"),
            limits=Limits(timeout=5),
            completion="tree",
        )


async def test_what_never_ran_may_be_asked_for_again(face: Face, tmp_path: Path) -> None:
    program = tmp_path / "later"
    first = await face.ask("retry", [str(program)])
    assert (first.state, first.reason) == (RunState.NOT_STARTED, "ENOENT")
    seen = await face.wait(first)
    assert (seen.state, seen.retryable, seen.outcome) == (RunState.NOT_STARTED, True, None)
    assert seen.reason == "ENOENT"
    program.write_text("#!/bin/sh\nexit 7\n")
    program.chmod(0o755)
    second = await face.ask("retry", [str(program)])
    assert (second.id, second.admission, second.attempt) == (first.id, "retry", 2)
    outcome = (await face.wait(second)).outcome
    assert outcome is not None
    assert outcome.code == 7


async def test_the_program_gets_what_was_asked_for(face: Face, tmp_path: Path) -> None:
    run = await face.start(
        ["sh", "-c", 'cat; echo "$A|$1"; pwd; echo "$DURABLE_SUPERVISOR_RUN_ID"', "sh", "ünï"],
        cwd=tmp_path,
        env={"A": "one two"},
        stdin=b"given\n",
    )
    seen = await face.wait(run)
    lines = (await face.output(run)).decode().splitlines()
    assert lines == ["given", "one two|ünï", str(tmp_path), run.id]
    assert seen.argv[-1] == "ünï"
    assert seen.cwd == str(tmp_path)


async def test_what_cannot_be_asked_names_its_field(face: Face) -> None:
    wrong: dict[str, Any] = {
        "request_id": "a b", "labels": {"": "x"}, "completion": "never", "queue": 1, "priority": 101,
    }  # fmt: skip
    for field, value in wrong.items():
        async with refusing(ErrorCode.INVALID_REQUEST, Phase.VALIDATE, {"field": field}):
            await face.sup.start(Command(argv=["true"]), **{field: value})


async def test_the_timeline_of_a_start(face: Face) -> None:
    run = await face.start(["true"])
    await face.wait(run)
    assert await face.kinds(run) == [
        Kind.RUN_DISPATCHED,
        Kind.PROGRAM_SPAWNED,
        Kind.PROGRAM_RELEASED,
        Kind.PROGRAM_EXITED,
        Kind.RUN_FINISHED,
    ]
