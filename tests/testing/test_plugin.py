"""The plugin in real runs of pytest: each is a process of its own, with nothing loaded but what it names."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from durable_supervisor.testing import FakeProgram
from durable_supervisor.testing.crash import points
from tests.support import running

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
MANUAL = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
PLUGIN = "durable_supervisor.testing.plugin"


@pytest.fixture
def inner(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project that has the product on its path, and no plugin but those that a test names."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"), prepend=os.pathsep)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makeini("[pytest]\naddopts = --strict-markers --import-mode=importlib\n")
    return pytester


def run(inner: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return inner.runpytest_subprocess("-p", "no:cacheprovider", "-p", PLUGIN, *arguments, timeout=90)


def test_the_manual_s_examples_pass(inner: pytest.Pytester) -> None:
    examples = re.findall(r"```python\n(.*?)```", MANUAL, flags=re.DOTALL)
    assert len(examples) == 4
    inner.makepyfile(**{f"test_{number}": text for number, text in enumerate(examples, start=1)})
    result = run(inner, "-p", "pytest_asyncio.plugin")
    result.assert_outcomes(passed=sum(_tests(text) for text in examples))


def _tests(example: str) -> int:
    """How many tests it holds; one with parameters counts for each."""
    lists = re.findall(r"parametrize\(\"\w+\", \[(.*?)\]\)", example)
    return example.count("def test_") - len(lists) + sum(len(one.split(",")) for one in lists)


def test_leaked_runs_fail_their_test_and_are_ended(inner: pytest.Pytester) -> None:
    inner.makepyfile(
        """
        import pytest
        from durable_supervisor import Command

        def leak(supervisor, program):
            run = supervisor.sync.start(program.command())
            left = program.wait_for("up")
            print("RUN", run.id, left.pid, *left.children)

        def test_leaks(durable_supervisor, fake_program):
            program = fake_program().ignore("TERM").child("daemon", stubborn=True)
            leak(durable_supervisor, program.mark("up").hang())

        @pytest.mark.durable_leaks
        def test_is_allowed_to(durable_supervisor, fake_program):
            leak(durable_supervisor, fake_program().mark("up").hang())

        def test_leaves_nothing(durable_supervisor):
            run = durable_supervisor.sync.start(Command(argv=["true"]))
            durable_supervisor.sync.wait(run.id)
        """
    )
    result = run(inner, "-s")
    result.assert_outcomes(passed=3, errors=1)
    (first, *pids), (second, pid) = (line.split()[1:] for line in re.findall(r"RUN .*", result.stdout.str()))
    told = result.stdout.str()
    assert re.search(rf"{first}: its worker \(pid \d+\), of \S*/fake-programs/\S+", told)
    assert f"{second}: " not in told
    assert len(pids) == 2
    assert not [one for one in (*pids, pid) if running(int(one))]


def test_it_works_under_anyio_and_in_a_loop_of_the_test_s_own(inner: pytest.Pytester) -> None:
    inner.makepyfile(
        """
        import asyncio
        import os

        import pytest
        from durable_supervisor import Command, run, sync

        @pytest.fixture
        def anyio_backend():
            return "asyncio"

        @pytest.mark.anyio
        async def test_anyio(durable_supervisor):
            started = await durable_supervisor.start(Command(argv=["echo", "hi"]))
            found = [event.text async for event in durable_supervisor.follow(started.id, kinds={"output"})]
            assert found == ["hi\\n"]
            assert (await run(Command(argv=["true"]))).success
            assert len((await durable_supervisor.list()).runs) == 2

        def test_own_loop(durable_supervisor):
            async def main():
                ended = await run(Command(argv=["true"]), supervisor=durable_supervisor)
                return (await durable_supervisor.inspect(ended.run_id)).state.value
            assert asyncio.run(main()) == "finished"

        def test_handed_over(durable_supervisor):
            ended = sync.run(Command(argv=["true"]), supervisor=durable_supervisor)
            assert durable_supervisor.sync.inspect(ended.run_id).receipt

        def test_sync(durable_state_dir):
            assert os.environ["DURABLE_SUPERVISOR_STATE_DIR"] == str(durable_state_dir)
            assert sync.run(Command(argv=["true"])).success
            assert (durable_state_dir / "journal.db").exists()
        """
    )
    run(inner, "-p", "anyio.pytest_plugin").assert_outcomes(passed=4)


def test_it_costs_nothing_where_it_is_not_used(inner: pytest.Pytester) -> None:
    inner.makepyfile(
        """
        import sys

        def test_nothing_is_loaded():
            ours = {name for name in sys.modules if name.startswith("durable_supervisor")}
            assert ours == {
                "durable_supervisor", "durable_supervisor.testing", "durable_supervisor.testing.plugin"
            }
            assert not {"asyncio", "pydantic", "sqlite3"} & set(sys.modules)
        """
    )
    run(inner).assert_outcomes(passed=1)


def test_the_manual_s_points_exist() -> None:
    table = MANUAL[MANUAL.index("| point |") :]
    named = re.findall(r"`([a-z_]+\.[a-z_]+)`", table)
    assert named
    assert not set(named) - points()


def test_the_manual_lists_every_step() -> None:
    other = {"command", "executions", "grants", "once", "open", "path", "ran", "wait_for"}
    steps = {name for name in vars(FakeProgram) if not name.startswith("_")} - other
    assert not [step for step in steps if f"`{step}(" not in MANUAL]


def test_only_the_plugin_knows_pytest(inner: pytest.Pytester) -> None:
    modules = "fake, crash, hosted, leftovers, reports"
    code = f"import sys; from durable_supervisor.testing import {modules}; print('pytest' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
