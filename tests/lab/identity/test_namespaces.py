"""Who a process is, in a pid namespace where pids come again, nobody reaps, and outsiders see nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from durable_supervisor import ErrorCode, RunState, Supervisor, SupervisorError
from tests.crash.harness import ROOT
from tests.lab.identity import first

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="a pid namespace needs root"
)
APART = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private"]


class First:
    """The first process of a namespace of its own, with which everything in there ends."""

    def __init__(self, scenario: str, folder: Path) -> None:
        if subprocess.run([*APART, "true"], capture_output=True, check=False).returncode:
            pytest.skip("no right to make a pid namespace here")
        self._errors = folder / "errors"
        command = [*APART, sys.executable, str(first.__file__), scenario, str(folder)]
        with open(self._errors, "wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, cwd=ROOT,
                env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
            )  # fmt: skip

    def says(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self._errors.read_text()
        facts: dict[str, Any] = json.loads(line)
        return facts

    def go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextmanager
def namespace(scenario: str, folder: Path) -> Iterator[First]:
    made = First(scenario, folder)
    try:
        yield made
    finally:
        made.end()


def test_under_a_first_process_that_never_reaps(tmp_path: Path) -> None:
    with namespace("zombies", tmp_path) as there:
        facts = there.says()
    assert (facts["state"], facts["ended"]) == ("unknown", "finished")


def test_pids_that_have_come_to_name_others(tmp_path: Path) -> None:
    """Never signalled, never taken for alive: the run is unknown at once, not quarantined first."""
    with namespace("reuse", tmp_path) as there:
        facts = there.says()
    assert facts["alive"] == [True, True]
    assert facts["states"] == ["unknown"]
    assert facts["state"] == "unknown"


async def test_a_run_of_another_pid_namespace(tmp_path: Path) -> None:
    """Its lock proves that it is held; without worker nothing of its program can be proven from here."""
    state_dir = tmp_path / "elsewhere" / "state"
    with namespace("elsewhere", tmp_path) as there:
        run = there.says()["run"]
        async with Supervisor.open(state_dir) as sup:
            assert (await sup.inspect(run)).state is RunState.RUNNING
        there.go_on()
        there.says()
        async with Supervisor.open(state_dir) as sup:
            seen = await sup.inspect(run)
            assert seen.state is RunState.QUARANTINED, seen.reason
            assert not seen.retryable
            with pytest.raises(SupervisorError) as caught:
                await sup.wait(run, timeout=5)
            assert caught.value.code is ErrorCode.OUTCOME_UNKNOWN
    async with Supervisor.open(state_dir) as sup:
        await sup.reconcile()
        assert (await sup.inspect(run)).state is RunState.QUARANTINED
        await sup.resolve(run, "accept")
        assert (await sup.inspect(run)).state is RunState.UNKNOWN
