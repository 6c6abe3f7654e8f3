"""Versions that meet: what older ones left, their live workers, an older one before a newer journal."""

from __future__ import annotations

import lzma
import os
import shutil
from pathlib import Path

import pytest

from durable_supervisor import Command, ErrorCode, Observer, RunState, Supervisor, SupervisorError
from durable_supervisor.journal import migrate
from durable_supervisor.model.events import Kind
from tests.contract.hosts import HostScript
from tests.contract.runs import check_gapless
from tests.crash.harness import ROOT
from tests.lab.forms import FULL
from tests.lab.skew.released import FIXTURES, LIMITS, REQUESTS, SCHEMAS, code_of, unpack
from tests.support import PATIENCE, eventually_async

LIVES = """
async with Supervisor.open(STATE) as sup:
    async def start(name, script):
        return (await sup.start(Command(argv=["sh", "-c", script], stdin="open"), request_id=name)).id
    report(
        hears=await start("hears", "echo up; read line; echo got $line; exit 5"),
        stopped=await start("stopped", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"),
        lost=await start("lost", "echo up; exec sleep 600"),
    )
    await stay()
"""
# The last commit in which a worker got its next run over a socket of its own.
TWO_SOCKETS = SCHEMAS["schema-3"]
EXCHANGED = """
import durable_supervisor
from durable_supervisor.reconcile import told
from durable_supervisor.supervisor import workers
assert durable_supervisor.__file__.startswith(sys.argv[3])
ends = []
async with Supervisor.open(STATE) as sup:
    os.rename(sys.argv[3], sys.argv[3] + ".gone")
    os.rename(sys.argv[4], sys.argv[3])
    async def one(number, script):
        run = await sup.start(Command(argv=["sh", "-c", f"{script}; exit {number}"]))
        if "sleep" in script:
            await sup.stop(run.id, grace=5)
        seen = await sup.wait(run.id, timeout=60)
        events = (await sup.events(run.id)).events
        warned = [event.detail for event in events if event.kind == "run.warning"]
        ends.append([seen.outcome.kind, seen.outcome.code, seen.attempt, warned])
    for number in range(6):
        await one(number, "true")
    await asyncio.gather(*(one(number, "true" if number % 2 else "sleep 3131") for number in range(6, 12)))
report(ends=sorted(ends, key=str))
"""
OPENS = """
try:
    async with Supervisor.open(STATE) as sup:
        report(code=None)
except SupervisorError as error:
    report(code=error.code.value)
"""


def directory_of(name: str, folder: Path) -> Path:
    unpack(lzma.decompress((FIXTURES / f"{name}.tar.xz").read_bytes()), folder)
    return folder / name


def command(name: str) -> Command:
    return Command(cwd="/", **REQUESTS[name])


@pytest.mark.parametrize("name", SCHEMAS)
async def test_a_directory_that_an_older_version_left(tmp_path: Path, name: str) -> None:
    """Everything is read, every id answers with its run, and nothing but what never ran is executed."""
    state_dir = directory_of(name, tmp_path)
    async with Supervisor.open(state_dir) as sup:
        ids = {view.request_id: view.id for view in (await sup.list()).runs}
        assert ids.keys() == REQUESTS.keys()
        for request_id, run in ids.items():
            view = await sup.inspect(run)
            page = await sup.events(run, limit=1000)
            check_gapless(page.events)
            assert view.labels == {"kept": request_id}
            if request_id == "missing":
                assert (view.state, view.reason, view.retryable) == (RunState.NOT_STARTED, "ENOENT", True)
            elif request_id == "lost":
                assert (view.state, view.outcome) == (RunState.UNKNOWN, None)
            else:
                assert view.outcome is not None
                assert (view.state, view.outcome.code) == (RunState.FINISHED, 5)
            again = await sup.start(
                command(request_id),
                request_id=request_id,
                limits=LIMITS,
                labels={"kept": request_id},
            )
            retried = request_id == "missing"
            assert (again.id, again.attempt) == (run, 2 if retried else 1)
            assert again.admission == ("retry" if retried else "existing")
            with pytest.raises(SupervisorError) as caught:
                await sup.start(Command(argv=["true"]), request_id=request_id)
            assert caught.value.code is ErrorCode.IDEMPOTENCY_CONFLICT
        loud = await sup.events(ids["loud"], limit=1000, kinds={Kind.OUTPUT_DROPPED})
        assert loud.events
        new = await sup.start(Command(argv=["sh", "-c", "exit 5"]), request_id="new")
        assert (await sup.wait(new.id, timeout=PATIENCE)).state is RunState.FINISHED


@pytest.mark.parametrize("name", SCHEMAS)
async def test_such_a_directory_whose_journal_is_lost(tmp_path: Path, name: str) -> None:
    state_dir = directory_of(name, tmp_path)
    for path in state_dir.glob("journal.db*"):
        path.unlink()
    await Supervisor.recover(state_dir)
    async with Supervisor.open(state_dir) as sup:
        for request_id in REQUESTS.keys() - {"missing"}:
            again = await sup.start(
                command(request_id),
                request_id=request_id,
                limits=LIMITS,
                labels={"kept": request_id},
            )
            assert (again.admission, again.attempt) == ("existing", 1)


def test_each_older_schema_has_a_directory() -> None:
    assert [f"schema-{number}" for number in range(1, len(migrate.load()))] == list(SCHEMAS)


@pytest.mark.parametrize("newer_owner", [False, True])
async def test_code_that_is_exchanged_beneath_an_owner(
    state_dir: Path, tmp_path: Path, newer_owner: bool
) -> None:
    """What it starts from then on is of the other version: each worker has its run, if no further one."""
    older, newer = code_of(TWO_SOCKETS, tmp_path / "older"), tmp_path / "newer" / "src"
    for folder in ("src", "migrations"):
        shutil.copytree(ROOT / folder, newer.parent / folder)
    ours, others = (newer, older) if newer_owner else (older, newer)
    host = HostScript(
        EXCHANGED, state_dir, tmp_path, env={"PYTHONPATH": str(ours)}, arguments=[str(ours), str(others)]
    )
    with host:
        ends = host.finish(PATIENCE * 2)["ends"]
    exited: list[list[object]] = [["exited", number, 1, []] for number in (0, 1, 2, 3, 4, 5, 7, 9, 11)]
    assert ends == sorted([*exited, *[["cancelled", None, 1, []]] * 3], key=str)


async def test_an_older_version_refuses_a_newer_journal(state_dir: Path, tmp_path: Path) -> None:
    source = code_of(SCHEMAS["schema-2"], tmp_path / "older")
    async with Supervisor.open(state_dir) as sup:
        run = await sup.start(Command(argv=["sh", "-c", "exit 5"]), request_id="one")
        await sup.wait(run.id, timeout=PATIENCE)
    with HostScript(OPENS, state_dir, tmp_path, env={"PYTHONPATH": str(source)}) as older:
        assert older.finish(PATIENCE) == {"code": ErrorCode.JOURNAL_NEWER.value}
    async with Supervisor.open(state_dir) as sup:
        assert (await sup.inspect(run.id)).state is RunState.FINISHED


@pytest.mark.parametrize("name", list(SCHEMAS) if FULL else ["schema-3"])
async def test_live_workers_of_an_older_version(state_dir: Path, tmp_path: Path, name: str) -> None:
    """Its owner is killed and its code gone; the newer one hears, talks to and stops what it left."""
    source = code_of(SCHEMAS[name], tmp_path / "older")
    with HostScript(LIVES, state_dir, tmp_path, env={"PYTHONPATH": str(source)}) as older:
        runs = older.facts(PATIENCE)
        older.kill()
    os.rename(source.parent, tmp_path / "gone")
    async with Supervisor.open(state_dir) as sup:
        for run in runs.values():
            assert (await sup.inspect(run)).state is RunState.RUNNING
        assert (await sup.write_stdin(runs["hears"], b"you\n")).result == "written"
        hears = await sup.wait(runs["hears"], timeout=PATIENCE)
        assert hears.outcome is not None
        assert hears.outcome.code == 5
        stopped = await sup.stop(runs["stopped"])
        assert stopped.confirmed
        lost = await sup.inspect(runs["lost"])
        os.kill(int(str(dict(lost.worker or {})["pid"])), 9)

        async def quarantined() -> bool:
            await sup.reconcile()
            return (await sup.inspect(runs["lost"])).state is RunState.QUARANTINED

        await eventually_async(quarantined)
        seen = await sup.resolve(runs["lost"], "kill")
        assert seen.state is RunState.UNKNOWN
    async with Observer.open(state_dir) as reader:
        for run in runs.values():
            check_gapless((await reader.events(run, limit=1000)).events)
