"""A worker that takes one run after the other: each is as if it had a worker of its own."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from durable_supervisor import Command, Observer, RunState, Supervisor, Terminal
from durable_supervisor.model.view import RunView
from durable_supervisor.process import inotify
from durable_supervisor.process.tree import children_of
from durable_supervisor.supervisor.workers import spare
from tests.process.reuse import a_free_worker, busy, ended, free_workers, is_free, text_of
from tests.process.test_zygote import alive, worker_pid
from tests.support import eventually_async

pytestmark = pytest.mark.usefixtures("no_zygotes")


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Free workers are let go of only where a test is about that: a busy machine may take its time."""
    monkeypatch.setattr(spare, "_IDLE_SECONDS", 600)


async def test_runs_in_a_row_share_a_worker_and_nothing_else(state_dir: Path) -> None:
    script = 'echo "$MINE" "$@"; umask; pwd; ls /proc/$$/fd; grep "^Sig[^Q]" /proc/self/status; exit $1'
    async with busy(state_dir) as sup:

        async def one(number: int) -> tuple[int, str]:
            """Its worker, and what it found."""
            argv = ["sh", "-c", script, "sh", str(number)]
            run = await ended(sup, *argv, env={"MINE": f"value {number}"}, cwd="/usr")
            assert run.outcome is not None
            assert run.outcome.code == number
            head, _, rest = (await text_of(sup, run)).partition("\n")
            assert head == f"value {number} {number}"
            return worker_pid(run), rest

        async def three_in_a_row() -> list[str] | None:
            worker = await a_free_worker(sup)
            found = []
            for number in (1, 2, 3):
                at_work, text = await one(number)
                if at_work != worker:
                    return None  # not where the run before took too long
                found.append(text)
            return found

        texts = await eventually_async(three_in_a_row, timeout=90)
        assert len(set(texts)) == 1, "umask, directory, descriptors and signals are always the same"
        assert not list(state_dir.glob("runs/*/*.sock"))


async def test_usage_is_of_one_run(state_dir: Path) -> None:
    async with busy(state_dir) as sup:

        async def two_of_one_worker() -> tuple[RunView, RunView] | None:
            greedy = await ended(sup, "sh", "-c", "head -c 60000000 /dev/zero | tail -c 60000000 >/dev/null")
            modest = await ended(sup, "true")
            same = worker_pid(greedy) == worker_pid(modest)  # not where the first one took too long
            return (greedy, modest) if same else None

        greedy, modest = await eventually_async(two_of_one_worker, timeout=60)
        much, little = greedy.receipt["rusage"], modest.receipt["rusage"]
        assert much["max_rss_kib"] > 50_000
        assert 0 < little["max_rss_kib"] < 50_000
        assert _seconds(little) < _seconds(much)


def _seconds(rusage: dict[str, float]) -> float:
    return rusage["user_seconds"] + rusage["system_seconds"]


@pytest.mark.parametrize(
    "options",
    [
        {"secret_env": {"KEY": "a secret of 22 letters"}},
        {"env": {"API_TOKEN": "a secret of 22 letters"}},
        {"stdin": b"an input"},
        {"stdin": "open"},
        {"pty": Terminal()},
    ],
    ids=["secret_env", "token", "stdin", "open_stdin", "terminal"],
)
async def test_a_worker_that_has_known_a_secret_or_an_input_ends_with_its_run(
    state_dir: Path, options: dict[str, Any]
) -> None:
    async with busy(state_dir) as sup:
        run = await ended(sup, "true", **options)
        await eventually_async(lambda: not alive(worker_pid(run)))


async def test_what_a_run_had_is_gone_from_the_references_of_its_worker(state_dir: Path) -> None:
    async with busy(state_dir) as sup:
        worker = await a_free_worker(sup)

        async def free_of_strangers() -> bool:
            strangers = await ended(sup, "sh", "-c", "setsid sleep 3131 >&- 2>&- & exit 4")
            assert strangers.receipt is not None
            assert strangers.receipt["cleanup_confirmed"]
            assert worker_pid(strangers) == worker
            return is_free(worker)

        while not await free_of_strangers():  # it took too long
            worker = await a_free_worker(sup)
        assert children_of(worker) == []


async def test_the_worker_of_a_longer_run_ends_with_it(state_dir: Path) -> None:
    async with busy(state_dir) as sup:
        worker = await a_free_worker(sup)
        run = await ended(sup, "sleep", "1.1")
        assert worker_pid(run) == worker
        await eventually_async(lambda: not alive(worker))


@pytest.mark.parametrize("watches", ["left", "used up"])
async def test_who_owns_nothing_hears_of_the_end_though_the_process_stays(
    state_dir: Path, watches: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if watches == "used up":  # all that a user may have: others of ours need them meanwhile
        monkeypatch.setattr(inotify, "watch_release", _no_watch_left)
    async with busy(state_dir) as sup, Observer.open(state_dir) as observer:
        for seconds in ("0.1", "1.2"):
            worker = await a_free_worker(sup)
            run = await sup.start(Command(argv=["sleep", seconds]))
            seen = await observer.wait(run.id, timeout=30)
            assert seen.state is RunState.FINISHED
            assert worker_pid(seen) == worker


def _no_watch_left(path: str) -> int:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


async def test_free_workers_leave_with_their_supervisor_and_others_do_not(state_dir: Path) -> None:
    async with busy(state_dir) as sup:

        async def some_of_them() -> set[int]:
            await asyncio.gather(*(ended(sup, "true") for _ in range(3)))
            free = set(free_workers())
            return free if len(free) > 1 else set()

        pids = await eventually_async(some_of_them)
        live = await sup.start(Command(argv=["sh", "-c", "sleep 0.4; exit 8"]))
        worker = worker_pid(await sup.inspect(live.id))
        assert worker in pids
    await eventually_async(lambda: not any(alive(pid) for pid in pids - {worker}))
    async with Supervisor.open(state_dir) as sup:
        seen = await sup.wait(live.id, timeout=30)
        assert seen.outcome is not None
        assert seen.outcome.code == 8
    await eventually_async(lambda: not alive(worker))


async def test_nothing_is_left_of_many(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many at once, some of them stopped: each stop meets its own run, and no descriptor is left."""
    monkeypatch.setattr(spare, "_IDLE_SECONDS", 1)
    async with busy(state_dir) as sup:
        pids = set()

        async def one(number: int) -> None:
            stopped = number % 5 == 0
            run = await sup.start(Command(argv=["sleep", "3131"] if stopped else ["true"]))
            if stopped:
                await sup.stop(run.id, grace=5)
            seen = await sup.wait(run.id, timeout=60)
            assert seen.outcome is not None
            assert seen.outcome.kind == ("cancelled" if stopped else "exited")
            pids.add(worker_pid(seen))

        async def many(batches: int) -> None:
            """Until all is quiet, and free workers are let go of."""
            for batch in range(batches):
                await asyncio.gather(*(one(batch * 8 + number) for number in range(8)))
            await eventually_async(lambda: free_workers() == [])

        def descriptors() -> int:
            return len(os.listdir("/proc/self/fd")) - sup._dispatcher._next_log.is_there

        await many(2)
        before = descriptors()
        pids.clear()
        await many(25)
        await eventually_async(lambda: descriptors() <= before)
        assert len(pids) < 100


@pytest.mark.parametrize(
    "trick",
    [
        "renice -n 19 -p $PPID",
        "prlimit --pid $PPID --nofile=64:",
        "taskset -p 1 $PPID",
        "chrt -b -p 0 $PPID",
        "ionice -c 3 -p $PPID",
        "echo 500 >/proc/$PPID/oom_score_adj",
        "echo 1000000 >/proc/$PPID/timerslack_ns",
    ],
)
async def test_a_worker_that_its_program_has_tampered_with_has_no_other(state_dir: Path, trick: str) -> None:
    async with busy(state_dir) as sup:
        worker = await a_free_worker(sup)
        run = await ended(sup, "sh", "-c", trick)
        assert worker_pid(run) == worker
        assert run.outcome is not None
        if run.outcome.code:
            pytest.skip(f"not to be had here: {trick}")
        await eventually_async(lambda: not alive(worker))
