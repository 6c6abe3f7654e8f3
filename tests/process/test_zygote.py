"""Workers forked by the zygote: the same behaviour, whatever happens to the zygote."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from durable_supervisor import Command, RunState, Supervisor
from durable_supervisor.process.identity import read_stat
from durable_supervisor.process.tree import children_of
from tests.conftest import eventually, eventually_async


def zygotes() -> list[int]:
    """Children of this process that are zygotes."""
    found = []
    for pid in children_of(os.getpid()):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"worker/zygote.py" in line:
            found.append(pid)
    return found


def alive(pid: int) -> bool:
    stat = read_stat(pid)
    return stat is not None and not stat.dead


def worker_pid(view: object) -> int:
    return int(view.worker["pid"])  # type: ignore[attr-defined]


async def test_workers_are_the_zygotes_children_and_report_like_any_other(state_dir: Path) -> None:
    async with Supervisor.open(state_dir, zygote=True) as sup:
        run = await sup.start(Command(argv=["sh", "-c", "echo $$; exit 5"]))
        final = await sup.wait(run.id, timeout=20)
        assert final.outcome is not None
        assert final.outcome.code == 5
        live = await sup.start(Command(argv=["sleep", "3131"]))
        view = await sup.inspect(live.id)
        stat = read_stat(worker_pid(view))
        assert stat is not None
        assert stat.ppid in zygotes()
        await sup.stop(live.id, grace=5)


async def test_workers_live_on_when_the_zygote_ends_with_its_supervisor(state_dir: Path) -> None:
    async with Supervisor.open(state_dir, zygote=True) as sup:
        run = await sup.start(Command(argv=["sh", "-c", "read line; exit 9"], stdin="open"))
        (zygote,) = zygotes()
    eventually(lambda: not alive(zygote))
    async with Supervisor.open(state_dir) as sup:
        assert (await sup.inspect(run.id)).state is RunState.RUNNING
        await sup.write_stdin(run.id, b"go\n")
        final = await sup.wait(run.id, timeout=20)
        assert final.outcome is not None
        assert final.outcome.code == 9


async def test_a_killed_zygote_is_made_anew(state_dir: Path) -> None:
    async with Supervisor.open(state_dir, zygote=True) as sup:
        first = await sup.start(Command(argv=["sleep", "3131"]))
        (zygote,) = zygotes()
        os.kill(zygote, signal.SIGKILL)
        await eventually_async(lambda: not alive(zygote))
        second = await sup.start(Command(argv=["true"]))
        assert (await sup.wait(second.id, timeout=20)).outcome is not None
        third = await sup.start(Command(argv=["true"]))
        assert (await sup.wait(third.id, timeout=20)).outcome is not None
        assert zygote not in zygotes()
        assert len(zygotes()) == 1
        assert (await sup.inspect(first.id)).state is RunState.RUNNING
        await sup.stop(first.id, grace=5)


async def test_a_silent_zygote_is_ended_and_the_run_started_by_exec_once(
    state_dir: Path, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    async with Supervisor.open(state_dir, zygote=True) as sup:
        warm = await sup.start(Command(argv=["true"]))
        await sup.wait(warm.id, timeout=20)
        (zygote,) = zygotes()
        os.kill(zygote, signal.SIGSTOP)
        run = await sup.start(Command(argv=["sh", "-c", f"echo ran >> '{ledger}'"]))
        final = await sup.wait(run.id, timeout=20)
        assert final.outcome is not None
        assert not alive(zygote)
        page = await sup.events(run.id)
        warnings = [event.detail for event in page.events if event.kind == "run.warning"]
        assert warnings == [{"reason": "started_by_exec", "cause": "zygote silent"}]
    assert ledger.read_text() == "ran\n"


async def test_without_a_zygote_there_is_none(state_dir: Path) -> None:
    async with Supervisor.open(state_dir, zygote=False) as sup:
        for _ in range(3):
            run = await sup.start(Command(argv=["true"]))
            await sup.wait(run.id, timeout=20)
        assert zygotes() == []
