"""Owners, workers and programs in another time namespace than whoever looks: there the same process has begun
at another time since boot.  What cannot be proven is not: nobody is signalled, nobody judged gone.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from durable_supervisor import ErrorCode, Observer, RunState, RunView, Supervisor
from durable_supervisor.model.identity import identity_of
from durable_supervisor.process.identity import Liveness, probe
from tests.contract.hosts import HostScript, refused
from tests.lab.time.test_clocks import HOST, check_next_owner, printed
from tests.support import PATIENCE, eventually, eventually_async, running

OFFSETS = ["--boottime", "1000000", "--monotonic", "500000"]
APART = ["unshare", *(["--map-root-user"] if os.geteuid() else []), "--time", *OFFSETS]
LOST = """
async with Supervisor.open(STATE) as sup:
    async def start(name):
        command = Command(argv=["sh", "-c", "echo up; exec sleep 600"])
        return (await sup.start(command, request_id=name)).id
    report(lost=await start("lost"), ended=await start("ended"))
    await stay()
"""
RESOLVED = """
async with Supervisor.open(STATE) as sup:
    before = (await sup.inspect(sys.argv[3])).state.value
    after = (await sup.resolve(sys.argv[3], "kill")).state.value
    report(before=before, after=after)
"""


@pytest.fixture(autouse=True)
def _possible() -> None:
    if shutil.which("unshare") is None or not os.path.exists("/proc/self/ns/time"):
        pytest.skip("no time namespaces here")
    tried = subprocess.run([*APART, "--fork", "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"no right to make a time namespace here: {tried.stderr.strip()}")


def check_elsewhere(seen: RunView) -> None:
    """Its identities are of another time namespace, and say so."""
    for form in (seen.worker, seen.program):
        one = identity_of(form)
        assert one is not None
        assert one.time_ns != os.readlink("/proc/self/ns/time")
        assert probe(one) is Liveness.UNPROVABLE


async def check_deadlines(state_dir: Path, runs: dict[str, str]) -> None:
    """They passed when they should have, and the long ones have not."""
    await printed(state_dir, runs)
    async with Observer.open(state_dir) as seen:
        for name, kind in (("silent", "idle_timed_out"), ("bounded", "timed_out")):
            outcome = (await seen.wait(runs[name], timeout=PATIENCE)).outcome
            assert outcome is not None
            assert outcome.kind.value == kind
        patient = await seen.inspect(runs["patient"])
        assert patient.state is RunState.RUNNING
        check_elsewhere(patient)


async def test_owner_and_workers_elsewhere(state_dir: Path, tmp_path: Path) -> None:
    """Deadlines hold there; the next owner, who is here, reaches the workers by their sockets."""
    prefix = [*APART, "--fork", "--kill-child"]
    with HostScript(HOST, state_dir, tmp_path, prefix=prefix, env={"LAB_PYTHON": sys.executable}) as owner:
        runs = owner.facts(PATIENCE)
        await check_deadlines(state_dir, runs)
    await check_next_owner(state_dir, runs)


def moves(python: Path) -> bool:
    """Is what this interpreter runs in another time namespace than we are?"""
    command = [str(python), "-c", "import os; print(os.readlink('/proc/self/ns/time'))"]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    return told.stdout.strip() != os.readlink("/proc/self/ns/time")


async def test_workers_elsewhere(state_dir: Path, tmp_path: Path) -> None:
    """The owner is here, as we are; its workers have moved."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nexec {' '.join(APART)} '{sys.executable}' \"$@\"\n")
    python.chmod(0o755)
    if not moves(python):
        pytest.skip("this kernel moves nobody at exec")
    with HostScript(HOST, state_dir, tmp_path, env={"LAB_PYTHON": str(python)}) as owner:
        runs = owner.facts(PATIENCE)
        await check_deadlines(state_dir, runs)
    await check_next_owner(state_dir, runs)


async def test_a_worker_that_dies_elsewhere(state_dir: Path, tmp_path: Path) -> None:
    """Its program may be alive or not: who cannot prove it kills nothing; who is there can."""
    with HostScript(LOST, state_dir, tmp_path, prefix=[*APART, "--fork", "--kill-child"]) as owner:
        runs = owner.facts(PATIENCE)
        await printed(state_dir, runs)
    programs = await kill_workers(state_dir, runs)
    try:
        os.kill(programs["ended"], signal.SIGKILL)
        eventually(lambda: not running(programs["ended"]))
        async with Supervisor.open(state_dir) as sup:
            for run in runs.values():
                await check_unproven(sup, run)
        assert running(programs["lost"]), "nobody signals whom they cannot prove"
        if os.geteuid() == 0 and shutil.which("nsenter"):
            there = ["nsenter", f"--time=/proc/{programs['lost']}/ns/time"]
            with HostScript(RESOLVED, state_dir, tmp_path, prefix=there, arguments=[runs["lost"]]) as script:
                assert script.finish() == {"before": "quarantined", "after": "unknown"}
            eventually(lambda: not running(programs["lost"]))
    finally:
        with suppress(ProcessLookupError):
            os.kill(programs["lost"], signal.SIGKILL)


async def kill_workers(state_dir: Path, runs: dict[str, str]) -> dict[str, int]:
    """Kill the workers, which are ours to kill -> the pids of the programs."""
    programs = {}
    async with Observer.open(state_dir) as seen:
        for name, run in runs.items():
            view = await seen.inspect(run)
            check_elsewhere(view)
            assert view.worker is not None
            assert view.program is not None
            programs[name] = int(str(view.program["pid"]))
            os.kill(int(str(view.worker["pid"])), signal.SIGKILL)
    return programs


async def check_unproven(sup: Supervisor, run: str) -> None:
    """Neither alive nor gone: it stays quarantined, whoever asks for more."""

    async def lost() -> bool:
        await sup.reconcile()
        return (await sup.inspect(run)).state is RunState.QUARANTINED

    await eventually_async(lost)
    async with refused(ErrorCode.NOT_CONFIRMED):
        await sup.resolve(run, "kill")
    await sup.reconcile()
    assert (await sup.inspect(run)).state is RunState.QUARANTINED
