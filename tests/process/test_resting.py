"""A worker whose run is silent shares its memory with others, and is the same worker afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from durable_supervisor import Command, Supervisor
from durable_supervisor.process import libc
from durable_supervisor.process.samepage import code
from durable_supervisor.process.tree import children_of
from tests.process.handover import LISTENER, check_goes_on
from tests.process.test_zygote import IMAGE, alive, worker_pid, zygotes
from tests.support import PATIENCE, eventually_async

if os.uname().machine not in code.LISTINGS:
    pytest.skip("there is no code for this machine", allow_module_level=True)

pytestmark = pytest.mark.usefixtures("no_zygotes")


def own_kib(pid: int) -> int:
    """Memory that nobody else has."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty:"))


def shares(pid: int) -> bool:
    try:
        return IMAGE in Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False  # it has ended


async def start(sup: Supervisor, *argv: str, **more: object) -> tuple[str, int]:
    """The run, and its worker."""
    run = await sup.start(Command(argv=list(argv), **more))  # type: ignore[arg-type]
    return run.id, worker_pid(await sup.inspect(run.id))


async def text_of(sup: Supervisor, run_id: str) -> str:
    page = await sup.events(run_id)
    return "".join(event.text for event in page.events if event.kind == "output")


async def test_most_of_an_idle_workers_memory_is_everybodys(state_dir: Path) -> None:
    async with Supervisor.open(state_dir, zygote=True) as sup:
        await start(sup, "sleep", "3600")  # by a worker of a zygote that has done nothing yet
        before: dict[int, int] = {}
        while len(before) < 3:
            _, pid = await start(sup, "sleep", "3600")
            own = own_kib(pid)
            if not shares(pid):  # else we came too late to see it as it was
                before[pid] = own
        await eventually_async(lambda: all(2 * own_kib(pid) < than for pid, than in before.items()))
        await eventually_async(lambda: shares(*zygotes()))


async def test_nothing_is_lost_over_many_rests(state_dir: Path) -> None:
    script = "n=0; while read line; do n=$((n+1)); echo $n $line; echo $n >&2; done; exit 7"
    async with Supervisor.open(state_dir, zygote=True) as sup:
        run_id, worker = await start(sup, "sh", "-c", script, stdin="open")
        for number in range(1, 4):
            await eventually_async(lambda: shares(worker))
            quiet = own_kib(worker)
            await sup.write_stdin(run_id, f"line {number}\n".encode())
            await eventually_async(lambda n=number: said(sup, run_id, f"{n} line {n}\n"))  # type: ignore[misc]
            await eventually_async(lambda than=quiet: own_kib(worker) < than + 600)  # type: ignore[misc]
        await sup.write_stdin(run_id, b"", eof=True)
        final = await sup.wait(run_id, timeout=PATIENCE)
        assert final.outcome is not None
        assert final.outcome.code == 7
        assert (await text_of(sup, run_id)).count("line") == 3


async def said(sup: Supervisor, run_id: str, what: str) -> bool:
    return what in await text_of(sup, run_id)


async def test_whoever_rests_hears_a_stop_a_signal_and_the_next_owner(state_dir: Path) -> None:
    async with Supervisor.open(state_dir, zygote=True) as sup:
        stopped, first = await start(sup, "sleep", "3600")
        script = "trap 'echo caught; exit 3' USR1; while :; do sleep 0.05; done"
        signalled, second = await start(sup, "sh", "-c", script)
        handed = await sup.start(LISTENER)
        for worker in (first, second):
            await eventually_async(lambda pid=worker: shares(pid))  # type: ignore[misc]
        # Now there is what to share: the first rest is enough.
        timed, third = await start(sup, "sleep", "3600", timeout=6.0)
        await eventually_async(lambda: shares(third))
        await sup.stop(stopped, grace=5)
        await sup.signal(signalled, signal.SIGUSR1)
        ends = [(await sup.wait(run_id, timeout=PATIENCE)).outcome for run_id in (stopped, signalled, timed)]
        assert [str(end.kind) for end in ends if end is not None] == ["cancelled", "exited", "timed_out"]
        assert await text_of(sup, signalled) == "caught\n"
    await check_goes_on(state_dir, handed.id)


async def test_a_queued_run_rests_too_and_has_its_turn(state_dir: Path) -> None:
    async with Supervisor.open(state_dir, zygote=True, max_concurrent_runs=1) as sup:
        first, _ = await start(sup, "sleep", "3600")
        run = await sup.start(Command(argv=["sh", "-c", "echo mine; exit 4"]), queue=True)
        waiting = worker_pid(await sup.inspect(run.id))
        await eventually_async(lambda: shares(waiting))
        await sup.stop(first, grace=5)
        final = await sup.wait(run.id, timeout=PATIENCE)
        assert final.outcome is not None
        assert final.outcome.code == 4
        assert await text_of(sup, run.id) == "mine\n"


async def test_without_a_model_workers_keep_their_memory_and_work(state_dir: Path) -> None:
    """It is stopped as soon as it is there, so that the image stays empty."""
    async with Supervisor.open(state_dir, zygote=True) as sup:
        run_id, worker = await start(sup, "sh", "-c", "read line; exit 5", stdin="open")
        (zygote,) = zygotes()
        ended = asyncio.create_task(kill_all_but(zygote, {worker}))
        await asyncio.wait_for(ended, PATIENCE)
        assert not shares(worker)
        await sup.write_stdin(run_id, b"go\n")
        final = await sup.wait(run_id, timeout=PATIENCE)
        assert final.outcome is not None
        assert final.outcome.code == 5
        again, _ = await start(sup, "sh", "-c", "exit 6")
        final = await sup.wait(again, timeout=PATIENCE)
        assert final.outcome is not None
        assert final.outcome.code == 6


async def kill_all_but(zygote: int, spared: set[int]) -> None:
    """Who waits, who is the model, who presents it: all that the zygote has.

    From before a worker asks for a model until it has looked for its image again.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + 3.5
    while loop.time() < until:
        for pid in set(children_of(zygote)) - spared:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(0)


@pytest.mark.parametrize("largest_file", [resource.RLIM_INFINITY, 1 << 20], ids=["filled", "no-room"])
async def test_the_model_leaves_nothing_behind(state_dir: Path, largest_file: int) -> None:
    before = set(children_of(os.getpid()))
    with limit(resource.RLIMIT_FSIZE, largest_file), parent_of_orphans():
        async with Supervisor.open(state_dir, zygote=True) as sup:
            _, worker = await start(sup, "sleep", "3600")
            (zygote,) = zygotes()

            def others() -> set[int]:
                return {pid for pid in children_of(zygote) if alive(pid)} - {worker}

            await eventually_async(lambda: len(others()) == 1)
            (model,) = others()  # so far it waits for a run
            await eventually_async(lambda: len(others()) == 1 and model not in others())
            if largest_file == resource.RLIM_INFINITY:
                await eventually_async(lambda: all(map(shares, (worker, zygote, *others()))))
            assert set(children_of(os.getpid())) - before == {zygote}
            assert len((await sup.list()).runs) == 1


@contextlib.contextmanager
def limit(which: int, soft: int) -> Iterator[None]:
    before = resource.getrlimit(which)
    resource.setrlimit(which, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(which, before)


@contextlib.contextmanager
def parent_of_orphans() -> Iterator[None]:
    """Zombies, too, as the first process of a container is."""
    libc.set_child_subreaper()
    try:
        yield
    finally:
        ctypes.CDLL(None).prctl(libc.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
