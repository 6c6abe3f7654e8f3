"""A host is killed where it was asked to be, parts of a run are, and nothing is taken for granted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from durable_supervisor import Command, ErrorCode, Limits, Supervisor, SupervisorError, run
from durable_supervisor.testing import CrashInjector, FakeProgram, FakePrograms, failpoint, report
from durable_supervisor.testing.crash import points
from durable_supervisor.testing.leftovers import attempts, groups_of, leaked, survivors
from tests.policy.resources import needs_group
from tests.support import PATIENCE, reap_state_dir


@pytest.fixture
def injector(state_dir: Path, tmp_path: Path) -> Iterator[CrashInjector]:
    made = CrashInjector(state_dir, tmp_path / "hosts")
    yield made
    made.close()


@pytest.fixture
def program(tmp_path: Path) -> FakeProgram:
    return FakePrograms(tmp_path)().mark("begun").wait("go").exit(4)


async def a_host(state_dir: Path, program: FakeProgram) -> None:
    """Starts the program, and would wait for its end."""
    async with Supervisor.open(state_dir) as sup:
        run = await sup.start(program.command(), request_id="r-1")
        report(run_id=run.id)
        failpoint("host.started")
        try:
            await sup.wait(run.id)
        except SupervisorError as error:
            report(code=error.code.value)


async def a_host_of_its_own(state_dir: Path, program: FakeProgram) -> None:
    """Its run ends with it."""
    async with Supervisor.open(state_dir) as sup:
        await run(program.command(), supervisor=sup)


def a_failing_host() -> None:
    raise RuntimeError("something of its own")


def a_quiet_host() -> None:
    print("nothing to report")


@pytest.mark.parametrize(("at", "released"), [("start.committed", False), ("host.started", True)])
async def test_the_host_dies_at_its_point_and_nothing_runs_twice(
    injector: CrashInjector, state_dir: Path, program: FakeProgram, at: str, released: bool
) -> None:
    host = injector.run(a_host, state_dir, program, at=at)
    assert host.killed
    assert ("run_id" in host.reported) == released
    program.open("go")
    async with Supervisor.open(state_dir) as sup:
        run = await sup.start(program.command(), request_id="r-1")
        seen = await sup.wait(run.id, timeout=PATIENCE)
    assert seen.outcome is not None
    assert seen.outcome.code == 4
    assert program.once().code == 4


def test_a_worker_dies_at_its_point_and_the_host_sees_it(
    injector: CrashInjector, state_dir: Path, program: FakeProgram
) -> None:
    host = injector.start(a_host, state_dir, program, at="worker.running")
    host.wait()
    assert not host.killed
    assert host.reported["code"] == ErrorCode.OUTCOME_UNKNOWN.value
    injector.kill_program(host.reported["run_id"])
    assert program.once().code is None


def test_parts_of_a_run_are_killed_by_identity(
    injector: CrashInjector, state_dir: Path, program: FakeProgram
) -> None:
    host = injector.start(a_host, state_dir, program)
    run_id = host.wait_for("run_id")
    program.wait_for("begun")
    assert injector.kill_supervisor() == host.pid
    host.wait()
    assert host.killed
    worker = injector.kill_worker(run_id)
    with pytest.raises(AssertionError, match=f"process {worker}, is gone already"):
        injector.kill_worker(run_id)
    assert "program" in leaked(state_dir, 0)[run_id]
    assert injector.kill_program(run_id) == program.once().pid
    assert leaked(state_dir, PATIENCE) == {}
    assert reap_state_dir(state_dir) == []
    with pytest.raises(AssertionError, match="no supervisor owns"):
        injector.kill_supervisor()


async def test_the_test_itself_is_never_killed(injector: CrashInjector, state_dir: Path) -> None:
    async with Supervisor.open(state_dir):
        with pytest.raises(AssertionError, match="this very process owns"):
            injector.kill_supervisor()


def test_after_some_time(injector: CrashInjector, state_dir: Path, program: FakeProgram) -> None:
    assert injector.run(a_host, state_dir, program, after=0.05).killed


def test_a_point_that_nobody_came_to_is_told(injector: CrashInjector) -> None:
    with pytest.raises(AssertionError, match=r"nobody came to worker\.released\nnothing to report"):
        injector.run(a_quiet_host, at="worker.released")


def test_a_host_that_fails_fails_the_test_with_its_words(injector: CrashInjector) -> None:
    with pytest.raises(AssertionError, match="something of its own"):
        injector.run(a_failing_host)
    with pytest.raises(AssertionError, match="did not report 'x' and ended with 1"):
        injector.start(a_failing_host).wait_for("x")


def test_mistakes_are_told_before_anything_is_started(injector: CrashInjector) -> None:
    with pytest.raises(ValueError, match=r"'worker\.relaesed' is no failpoint"):
        injector.start(a_quiet_host, at="worker.relaesed")
    with pytest.raises(ValueError, match="a function of a module"):
        injector.start(lambda: None)
    with pytest.raises(RuntimeError, match="crash_injector"):
        report(run_id="x")


def test_the_points_are_those_of_the_source() -> None:
    known = {"start.committed", "worker.released", "program.paused"}  # in folders of any depth
    assert {*known, "fork"} & points() == known


async def test_a_daemon_of_a_dead_worker_is_found_by_its_control_group(
    state_dir: Path, injector: CrashInjector, tmp_path: Path
) -> None:
    """It has an empty environment, and nothing above it is alive."""
    needs_group("processes")
    program = FakePrograms(tmp_path)().child("daemon", stubborn=True).mark("left").hang()
    async with Supervisor.open(state_dir) as sup:
        run = await sup.start(program.command(), limits=Limits(max_processes=20))
        (child,) = program.wait_for("left").children
        groups = groups_of(list(attempts(state_dir)))
    injector.kill_worker(run.id)
    injector.kill_program(run.id)
    assert leaked(state_dir, 0) == {run.id: f"a process that it started (pid {child}), of {program.path}"}
    assert reap_state_dir(state_dir) == [child]
    assert survivors(state_dir, PATIENCE) == {}
    assert not [one for found in groups.values() for one in found if os.path.exists(one)]


async def test_what_a_dead_worker_left_is_found(state_dir: Path, tmp_path: Path) -> None:
    """Its program has gone; a child in a session of its own is known by the run's id in its environment."""
    program = FakePrograms(tmp_path)().child("session", stubborn=True).mark("left").hang()
    async with Supervisor.open(state_dir) as sup:
        run = await sup.start(Command(argv=[program.path]))
    left = program.wait_for("left")
    injector = CrashInjector(state_dir, tmp_path / "hosts")
    injector.kill_worker(run.id)
    injector.kill_program(run.id)
    (child,) = left.children
    assert leaked(state_dir, 0) == {run.id: f"a process that it started (pid {child}), of {program.path}"}
    assert reap_state_dir(state_dir) == [child]
    assert leaked(state_dir, PATIENCE) == {}


async def test_what_ends_by_itself_is_no_leak(state_dir: Path, program: FakeProgram, tmp_path: Path) -> None:
    """A host is killed, and its run of scope lifetime has just a moment left."""
    injector = CrashInjector(state_dir, tmp_path / "hosts")
    host = injector.start(a_host_of_its_own, state_dir, program)
    program.wait_for("begun")
    injector.close()
    assert host.killed
    assert leaked(state_dir, PATIENCE) == {}
    assert program.once().code is None
