"""Kill -9 of a command line that starts a run, at every step: it owns the directory without an event loop."""

from __future__ import annotations

import signal
import subprocess
from typing import Any

import pytest

from durable_supervisor.cli.output import exit_codes
from durable_supervisor.process.failpoints import VARIABLE
from durable_supervisor.process.identity import read_stat
from tests.cli.helpers import COMMAND, Cli, Result, environment
from tests.crash.test_matrix import (
    ABSENT,
    EXIT,
    FINISHED,
    HOST,
    LONG,
    MISSING,
    NEVER,
    WORKER,
    Scenario,
    make_program,
)
from tests.crash.world import World, check_guarantees
from tests.support import PATIENCE, eventually

# All but the zygote's, which a command line has none of.
STEPS = {name: row[1] for name, row in HOST.items() if name.startswith(("open.", "start."))}
del STEPS["start.zygote_asked"]
FOLDS = [name for name in HOST if name.startswith("reconcile.")]


def start(world: World, failpoints: str = "", request_id: str | None = None, **env: Any) -> Result:
    armed = {VARIABLE: failpoints} if failpoints else {}
    words = ["start", "--json", "--request-id", request_id or world.request_id]
    stdin = world.options.get("stdin")
    if stdin is not None:
        words += ["--stdin", "-"]
    return Cli(world.state_dir)(*words, "--", *world.argv, stdin=(stdin or "").encode(), **armed, **env)


def assert_killed(result: Result) -> None:
    assert (result.code, result.raw) == (-signal.SIGKILL, b""), result.stderr


def _rows() -> list[Any]:
    rows = [pytest.param(name, EXIT, expected, id=name) for name, expected in STEPS.items()]
    return [*rows, pytest.param("start.spawned", LONG, NEVER, id="start.spawned-more")]


@pytest.mark.parametrize(("name", "scenario", "expected"), _rows())
async def test_it_is_killed(world: World, name: str, scenario: Scenario, expected: tuple[str, ...]) -> None:
    scenario.request(world)
    assert_killed(start(world, f"{name}=kill"))
    await check_guarantees(world, expected)


@pytest.mark.parametrize("name", [name for name in STEPS if name.startswith("start.")])
async def test_it_is_killed_in_a_second_attempt(world: World, name: str) -> None:
    MISSING.request(world)
    first = start(world)
    assert first.document["state"] == "not_started"
    make_program(world.argv[0])
    assert_killed(start(world, f"{name}=kill"))
    expected = STEPS[name]
    found = await check_guarantees(world, NEVER if expected == ABSENT else expected)
    assert found is not None
    assert (found.id, found.attempt) == (first.document["run_id"], 1 if expected == ABSENT else 2)


@pytest.mark.parametrize("name", FOLDS)
async def test_it_is_killed_over_the_end_of_an_earlier_run(world: World, name: str) -> None:
    EXIT.request(world)
    run_id = start(world).document["run_id"]
    assert Cli(world.state_dir)("wait", run_id).code == 5
    assert_killed(start(world, f"{name}=kill", request_id="another"))
    assert not world.ledger.begun("another")
    await check_guarantees(world, ("finished",))


@pytest.mark.parametrize(
    ("name", "expected"), [(name, row[1]) for name, row in WORKER.items() if row[0] is EXIT]
)
async def test_its_worker_is_killed(world: World, name: str, expected: tuple[str, ...]) -> None:
    EXIT.request(world)
    told = start(world, f"{name}=kill").document
    assert told["state"] in ("running", "quarantined", *expected)  # the last while its program lives
    await check_guarantees(world, expected)


def interrupt(world: World, name: str) -> int:
    """Its exit code after a Ctrl-C at this step."""
    words = ["start", "--request-id", world.request_id, "--", *world.argv]
    armed = environment(world.state_dir, **{VARIABLE: f"{name}=pause"})
    with subprocess.Popen([*COMMAND, *words], env=armed) as command:
        eventually(lambda: (stat := read_stat(command.pid)) is not None and stat.state == "T")
        command.send_signal(signal.SIGINT)
        command.send_signal(signal.SIGCONT)
        return command.wait(timeout=PATIENCE)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("open.judged", ABSENT), ("start.chosen", FINISHED), ("start.committed", FINISHED)],
)
async def test_ctrl_c_leaves_nothing_or_a_whole_start(
    world: World, name: str, expected: tuple[str, ...]
) -> None:
    EXIT.request(world)
    assert interrupt(world, name) == exit_codes.INTERRUPTED
    await check_guarantees(world, expected)
