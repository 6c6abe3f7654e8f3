"""A backup that is killed, or stands still while the original goes on."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from durable_supervisor import RunState, Supervisor
from durable_supervisor.process.failpoints import VARIABLE
from durable_supervisor.upkeep.verify import verify
from tests.cli.helpers import COMMAND, environment
from tests.contract.runs import Marker, state_of
from tests.gc.aging import age
from tests.support import PATIENCE, eventually
from tests.upkeep.busy import Busy
from tests.upkeep.points import BACKUPS


@contextmanager
def backing_up(state_dir: Path, dest: Path, point: str) -> Iterator[subprocess.Popen[bytes]]:
    """The command in a process of its own, that dies or stands still at a point."""
    env = environment(state_dir, **{VARIABLE: point})
    with subprocess.Popen([*COMMAND, "backup", str(dest)], env=env, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


async def test_killed_at_every_step(state_dir: Path, marker: Marker, tmp_path: Path) -> None:
    """At its place there is all of it or nothing; the original does not notice; the next one is good."""
    busy = Busy(tmp_path, marker)
    async with Supervisor.open(state_dir) as sup:
        live = await busy.send(sup, "live-1")
        await sup.wait((await busy.send(sup, "ended-1")).id, timeout=PATIENCE)
        for number, point in enumerate(BACKUPS):
            dest = tmp_path / f"copy-{number}"
            with backing_up(state_dir, dest, f"{point}=kill") as process:
                assert process.wait(timeout=60) == -signal.SIGKILL
            assert dest.exists() == (point == "backup.renamed")
        assert (await verify(dest)).findings == []
        left = [path for path in tmp_path.iterdir() if path.name.endswith(".partial")]
        assert len(left) == len(BACKUPS)
        for path in left:  # opened by mistake, none of them is a state directory
            assert not {"journal.db", "key", "runs"} & set(os.listdir(path))
        assert (await verify(state_dir)).findings == []
        assert (await sup.inspect(live.id)).state is RunState.RUNNING
        await sup.stop(live.id, grace=0)
    async with Supervisor.open(dest) as copy:
        assert (await busy.send(copy, "live-1")).state is RunState.UNKNOWN
        assert (await busy.send(copy, "ended-1")).state is RunState.FINISHED
    assert set(busy.notes("ran").values()) == {1}


async def test_what_happens_between_journal_and_logs(state_dir: Path, marker: Marker, tmp_path: Path) -> None:
    """Runs end, begin, are tried again and collected while the backup stands still."""
    busy, dest = Busy(tmp_path, marker), tmp_path / "copy"
    async with Supervisor.open(state_dir) as sup:
        collected = [await busy.send(sup, f"ended-{number}") for number in range(3)]
        for run in collected:
            await sup.wait(run.id, timeout=PATIENCE)
        await sup.reconcile()
        live = await busy.send(sup, "live-1")
        missing = await busy.send(sup, "missing-1")
        busy.wait_for(4)
        with backing_up(state_dir, dest, "backup.journal_copied=pause") as process:
            eventually(lambda: state_of(process.pid) == "T")
            age(state_dir)
            assert (await sup.gc(keep=1, apply=True)).count == 2
            await sup.stop(live.id, grace=0)
            late = await busy.send(sup, "ended-late")
            await sup.wait(late.id, timeout=PATIENCE)
            assert (await busy.send(sup, "missing-1")).attempt == 2
            process.send_signal(signal.SIGCONT)
            assert process.wait(timeout=60) == 0
    report = await verify(dest)
    assert report.findings == []
    assert (report.runs, report.collected) == (3, 2)
    async with Supervisor.open(dest) as copy:
        for number, run in enumerate(collected):
            again = await busy.send(copy, f"ended-{number}")
            assert (again.id, again.state) == (run.id, RunState.FINISHED)
        seen = await copy.inspect(live.id)  # its log was copied after its end
        assert seen.state is RunState.FINISHED
        assert seen.outcome is not None
        assert seen.outcome.kind == "cancelled"
        assert (await busy.send(copy, "missing-1")).attempt == 1
        assert missing.id in {view.id for view in (await copy.list()).runs}
        assert late.id not in {view.id for view in (await copy.list(collected=True)).runs}
    assert set(busy.notes("ran").values()) == {1}


@pytest.mark.parametrize("point", ["backup.journal_copied"])
async def test_interrupted_by_a_person(state_dir: Path, tmp_path: Path, point: str) -> None:
    """Ctrl-C: nothing is left of it."""
    async with Supervisor.open(state_dir):
        pass
    with backing_up(state_dir, tmp_path / "copy", f"{point}=pause") as process:
        eventually(lambda: state_of(process.pid) == "T")
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGCONT)
        assert process.wait(timeout=60) == 130
    assert os.listdir(tmp_path) == ["state"]
