"""Required and not to be had: refused by name, before anything is written, spawned or spent.

The mechanisms are really missing: the host has given up its own privileges and filters its own system
calls, so no network namespace can be made by whatever it starts; another is a user who can make no groups.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from durable_supervisor import (
    Command,
    ErrorCode,
    Grant,
    Limits,
    Observer,
    Policy,
    RunState,
    RunView,
    Supervisor,
    capabilities,
)
from tests.contract.hosts import host, refused
from tests.contract.runs import open_runs
from tests.service.users import as_user
from tests.support import PATIENCE

LOOPBACK = Policy(network="loopback", enforcement="required")
TRUE = Command(argv=["true"])
NOBODY = 65534

# In the host, before anything else: it and all that it starts can make no namespace any more.
WITHOUT_NAMESPACES = """
from durable_supervisor import Policy
from durable_supervisor.sandbox import privileges
from durable_supervisor.sandbox.calls import seccomp
rules = {"sockets": None, "io_uring": False, "tracing": False, "user_namespaces": True, "metadata": False}
privileges.drop()
seccomp.install(rules)

async def start(sup, request_id, argv=("true",), **policy):
    policy = Policy(**{"network": "loopback", "enforcement": "required", **policy})
    try:
        run = await sup.start(Command(argv=list(argv)), request_id=request_id, policy=policy)
    except SupervisorError as error:
        return error.to_dict()
    return {"run": run.id, "admission": run.admission, "state": run.state.value}
"""


@pytest.fixture
def loopback() -> None:
    """Only where this machine has it can it be missed elsewhere."""
    if capabilities().of("network")[1].applied != "full":
        pytest.skip("this user can make no network namespace here")


def written(state_dir: Path) -> set[str]:
    return {str(path.relative_to(state_dir)) for path in (state_dir / "runs").rglob("*")}


def axis(seen: RunView, name: str) -> dict[str, Any]:
    """What the receipt says of it."""
    report: Any = (seen.receipt or {})["enforcement"]
    return dict(report[name])


def lacking(state_dir: Path, folder: Path, body: str) -> dict[str, Any]:
    """What a host without namespaces reports."""
    code = f"async with Supervisor.open(STATE) as sup:\n    {body}"
    return host(code, state_dir, folder, before=WITHOUT_NAMESPACES)


async def test_nothing_is_written_and_the_id_is_not_spent(state_dir: Path, tmp_path: Path) -> None:
    said = lacking(state_dir, tmp_path, "report(refusal=await start(sup, 'one'))")["refusal"]
    assert said["code"] == ErrorCode.ENFORCEMENT_REFUSED.value
    assert said["details"]["axis"] == "network"
    assert "namespace" in said["details"]["reason"]
    assert "network" in said["message"]
    assert not said["retryable"]
    assert written(state_dir) == set()
    async with open_runs(state_dir) as runs:
        assert not (await runs.sup.list()).runs
        other = await runs.sup.start(TRUE, request_id="one")
        assert other.admission == "new"


async def test_best_effort_goes_without_and_says_so(state_dir: Path, tmp_path: Path) -> None:
    body = """run = await start(sup, "one", enforcement="best_effort")
    seen = await sup.wait(run["run"], timeout=60)
    report(axis=seen.receipt["enforcement"]["network"])"""
    said = lacking(state_dir, tmp_path, body)["axis"]
    assert (said["requested"], said["applied"], said["mechanism"]) == ("loopback", "none", None)
    assert said["reason"]


@pytest.mark.usefixtures("loopback")
async def test_a_known_request_is_answered_though_the_machine_has_lost_what_it_took(
    state_dir: Path, tmp_path: Path
) -> None:
    async with open_runs(state_dir) as runs:
        run = await runs.sup.start(TRUE, request_id="one", policy=LOOPBACK)
        assert (await runs.wait(run)).state is RunState.FINISHED
    said = lacking(
        state_dir, tmp_path, "report(again=await start(sup, 'one'), other=await start(sup, 'two'))"
    )
    assert said["again"] == {"run": run.id, "admission": "existing", "state": "finished"}
    assert said["other"]["code"] == ErrorCode.ENFORCEMENT_REFUSED.value


@pytest.mark.usefixtures("loopback")
async def test_another_attempt_takes_what_the_first_one_took(state_dir: Path, tmp_path: Path) -> None:
    missing = tmp_path / "program"
    command = Command(argv=[str(missing)])
    async with open_runs(state_dir) as runs:
        first = await runs.sup.start(command, request_id="one", policy=LOOPBACK)
        assert first.state is RunState.NOT_STARTED
    body = f"report(again=await start(sup, 'one', argv=[{str(missing)!r}]))"
    assert lacking(state_dir, tmp_path, body)["again"]["code"] == ErrorCode.ENFORCEMENT_REFUSED.value
    shutil.copy("/bin/true", missing)
    async with open_runs(state_dir) as runs:
        again = await runs.sup.start(command, request_id="one", policy=LOOPBACK)
        assert (again.id, again.attempt, again.admission) == (first.id, 2, "retry")
        assert axis(await runs.wait(again), "network")["applied"] == "full"


@pytest.mark.usefixtures("loopback")
async def test_a_run_from_the_queue_is_confined_as_any_other(state_dir: Path) -> None:
    async with Supervisor.open(state_dir, max_concurrent_runs=1) as sup:
        first = await sup.start(Command(argv=["cat"], stdin="open"))
        waits = await sup.start(Command(argv=["ls", "/sys/class/net"]), policy=LOOPBACK, queue=True)
        assert waits.state is RunState.QUEUED
        await sup.stop(first.id, grace=0)
        seen = await sup.wait(waits.id, timeout=PATIENCE)
        assert seen.policy == LOOPBACK.to_dict()
        assert axis(seen, "network")["applied"] == "full"


async def test_the_policy_is_part_of_the_request_also_after_the_journal_was_lost(state_dir: Path) -> None:
    policy = Policy(network="none")
    async with open_runs(state_dir) as runs:
        run = await runs.sup.start(TRUE, request_id="one", policy=policy)
        await runs.wait(run)
        async with refused(ErrorCode.IDEMPOTENCY_CONFLICT) as caught:
            await runs.sup.start(TRUE, request_id="one", policy=Policy(network="loopback"))
        assert caught().details["fields"] == ["policy"]
    for path in state_dir.glob("journal.db*"):
        path.unlink()
    await Supervisor.recover(state_dir)
    async with open_runs(state_dir) as runs:
        for other in (None, Policy(network="none", enforcement="required")):
            async with refused(ErrorCode.IDEMPOTENCY_CONFLICT) as caught:
                await runs.sup.start(TRUE, request_id="one", policy=other)
            assert caught().details["fields"] == ["policy"]
        assert (await runs.sup.start(TRUE, request_id="one", policy=policy)).id == run.id
    async with Observer.open(state_dir) as observer:
        seen = await observer.inspect(run.id)
        assert seen.policy == policy.to_dict()
        assert axis(seen, "network")["requested"] == "none"


async def test_limits_for_the_kernel_are_part_of_the_request(state_dir: Path) -> None:
    async with open_runs(state_dir) as runs:
        await runs.sup.start(TRUE, request_id="one", limits=Limits(max_open_files=30))
        async with refused(ErrorCode.IDEMPOTENCY_CONFLICT) as caught:
            await runs.sup.start(TRUE, request_id="one", limits=Limits(max_open_files=31))
        assert caught().details["fields"] == ["limits"]


async def test_a_user_who_can_make_no_groups(state_dir: Path, tmp_path: Path) -> None:
    """As root, with a host of another user; as a plain user, here."""
    prefix: list[str] = []
    if os.geteuid() == 0:
        prefix = as_user(NOBODY)
        for path in (tmp_path, state_dir):
            os.chown(path, NOBODY, NOBODY)
    elif capabilities().of("memory")[0].mechanism != "rlimit":
        pytest.skip("this user can make groups")
    code = """
    from durable_supervisor import Policy
    async with Supervisor.open(STATE) as sup:
        async def start(request_id, **enforcement):
            policy = Policy(enforcement=enforcement)
            limits = Limits(max_memory_bytes=1 << 30)
            command = Command(argv=["true"])
            return await sup.start(command, request_id=request_id, policy=policy, limits=limits)
        try:
            await start("one", memory="required")
        except SupervisorError as error:
            refusal = error.to_dict()
        run = await start("two", privileges="required")
        seen = await sup.wait(run.id, timeout=60)
        report(refusal=refusal, uid=os.geteuid(), enforcement=seen.receipt["enforcement"])
    """
    said = host(code, state_dir, tmp_path, prefix=prefix)
    assert said["uid"] == (NOBODY if prefix else os.geteuid())
    assert said["refusal"]["code"] == ErrorCode.ENFORCEMENT_REFUSED.value
    assert said["refusal"]["details"]["axis"] == "memory"
    assert said["enforcement"]["memory"]["mechanism"] == "rlimit"
    assert said["enforcement"]["memory"]["applied"] == "partial"
    assert said["enforcement"]["privileges"]["applied"] == "full"


async def test_a_grant_that_is_gone_does_not_hide_a_known_run(state_dir: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    policy = Policy(filesystem=[Grant(work, "all")])
    command = Command(argv=["true"], cwd=work)
    async with open_runs(state_dir) as runs:
        run = await runs.sup.start(command, request_id="one", policy=policy)
        await runs.wait(run)
        work.rmdir()
        assert (await runs.sup.start(command, request_id="one", policy=policy)).id == run.id
        async with refused(ErrorCode.INVALID_REQUEST):
            await runs.sup.start(command, request_id="two", policy=policy)


async def test_what_it_is_held_to_is_known_while_it_runs(state_dir: Path) -> None:
    async with open_runs(state_dir) as runs:
        run = await runs.sup.start(Command(argv=["cat"], stdin="open"), policy=Policy())
        seen = await runs.sup.inspect(run.id)
        assert seen.enforcement is not None
        held: Any = seen.enforcement["privileges"]
        assert held["applied"] == "full"
        assert (await runs.sup.inspect((await runs.sup.start(TRUE)).id)).enforcement is None
