"""Cancelling, closing and shutting down, and what is left in the host after many starts."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

from durable_supervisor import Command, ErrorCode, Observer, RunState, Supervisor
from durable_supervisor.process.locks import LockState, probe_lock
from tests.contract.hosts import check_error, host, kill_run, log_of, refused
from tests.contract.runs import Marker, Runs, appear, check_gapless, gone
from tests.support import PATIENCE, eventually, eventually_async, is_next_log

# Cancelling and closing.


async def test_a_cancelled_start_leaves_a_whole_start_behind(runs: Runs, marker: Marker) -> None:
    """Cancelled at many moments: afterwards each id stands for one whole run, or was never seen."""
    command = Command(argv=["sleep", str(marker)])
    for number in range(12):
        task = asyncio.ensure_future(runs.sup.start(command, request_id=f"r-{number}"))
        for _ in range(number):
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.wait([task])
    await eventually_async(lambda: not runs.sup._tasks)
    known = {view.request_id: view for view in (await runs.sup.list()).runs}
    for view in known.values():
        assert view.state is RunState.RUNNING, view
        check_gapless((await runs.sup.events(view.id)).events)
    appear(marker, len(known))
    for number in range(12):
        again = await runs.sup.start(command, request_id=f"r-{number}")
        if f"r-{number}" in known:
            assert again.id == known[f"r-{number}"].id
    assert len(marker.alive()) == 12
    report = await runs.sup.shutdown(timeout=PATIENCE)
    assert (len(report.stopped), report.unconfirmed) == (12, [])
    gone(marker)


async def test_closing_finishes_what_was_begun(state_dir: Path, marker: Marker) -> None:
    sup = await Supervisor.open(state_dir)
    starts = [
        asyncio.ensure_future(sup.start(Command(argv=["sleep", str(marker)]), request_id=f"r-{n}"))
        for n in range(4)
    ]
    await asyncio.sleep(0.002)
    closes = [asyncio.ensure_future(sup.close()) for _ in range(3)]
    answers = await asyncio.gather(*starts, return_exceptions=True)
    await asyncio.gather(*closes)
    await sup.close()
    begun = [one for one in answers if not isinstance(one, BaseException)]
    for error in answers:
        if isinstance(error, BaseException):
            check_error(error, ErrorCode.SUPERVISOR_CLOSED)  # type: ignore[arg-type]
    async with Supervisor.open(state_dir, wait=0) as sup:
        assert {view.id for view in (await sup.list()).runs} == {run.id for run in begun}
        assert len(marker.alive()) == len(begun)
        await sup.shutdown(timeout=PATIENCE)
    gone(marker)


async def test_use_after_close_is_refused_by_every_verb(state_dir: Path) -> None:
    async with Supervisor.open(state_dir) as sup:
        run = await sup.start(Command(argv=["true"]))
        await sup.wait(run.id, timeout=PATIENCE)
    seen = Observer.open(state_dir)
    await seen.close()
    calls: list[Any] = [
        lambda: sup.start(Command(argv=["true"])),
        lambda: sup.reconcile(),
        lambda: sup.resolve(run.id),
        lambda: sup.shutdown(),
    ]
    for one in (sup, seen):
        calls += [
            lambda one=one: one.inspect(run.id),
            lambda one=one: one.list(),
            lambda one=one: one.events(run.id),
            lambda one=one: one.feed(),
            lambda one=one: one.wait(run.id),
            lambda one=one: one.stop(run.id),
            lambda one=one: one.signal(run.id, 15),
            lambda one=one: one.write_stdin(run.id, b"x"),
            lambda one=one: anext(one.follow(run.id)),
        ]
    for call in calls:
        async with refused(ErrorCode.SUPERVISOR_CLOSED):
            await call()
    await sup.close()
    await seen.close()


async def test_shutdown_stops_all_and_names_what_it_could_not_confirm(runs: Runs, marker: Marker) -> None:
    """A stopped worker cannot answer: bounded, named, and left alone."""
    good = [await runs.sh(f"exec sleep {marker}") for _ in range(3)]
    ended = await runs.sh("exit 0")
    await runs.wait(ended)
    await runs.sup.reconcile()
    stuck = await runs.sh(f"exec sleep {marker}")
    view = await runs.sup.inspect(stuck.id)
    assert view.worker is not None
    await eventually_async(log_of(runs.state_dir, stuck.id).with_name(f"{stuck.id}.sock").exists)
    pid = int(str(view.worker["pid"]))
    os.kill(pid, signal.SIGSTOP)
    try:
        async with asyncio.timeout(PATIENCE):
            report = await runs.sup.shutdown(stop_runs=True, timeout=10)  # within which the others answer
        assert set(report.stopped) == {run.id for run in good}
        assert report.unconfirmed == [stuck.id]
        async with refused(ErrorCode.SUPERVISOR_CLOSED):
            await runs.sh("exit 0")
        assert len(marker.alive()) == 1
    finally:
        os.kill(pid, signal.SIGCONT)
    # The stop that it could not answer was heard all the same.
    async with Observer.open(runs.state_dir) as seen:
        final = await seen.wait(stuck.id, timeout=PATIENCE)
        assert final.outcome is not None
        assert final.outcome.kind.value == "cancelled"
    gone(marker)


async def test_shutdown_stops_also_what_is_just_starting(state_dir: Path, marker: Marker) -> None:
    sup = await Supervisor.open(state_dir)
    starting = [
        asyncio.ensure_future(sup.start(Command(argv=["sleep", str(marker)]), request_id=f"r-{n}"))
        for n in range(4)
    ]
    await asyncio.sleep(0)
    report = await sup.shutdown(timeout=PATIENCE)
    answers = await asyncio.gather(*starting, return_exceptions=True)
    begun = {one.id for one in answers if not isinstance(one, BaseException)}
    assert set(report.stopped) == begun
    gone(marker)


async def test_shutdown_without_stopping_leaves_runs_alone(state_dir: Path, marker: Marker) -> None:
    sup = await Supervisor.open(state_dir)
    run = await sup.start(Command(argv=["sleep", str(marker)]))
    report = await sup.shutdown(stop_runs=False)
    assert (report.stopped, report.unconfirmed) == ([], [])
    appear(marker, 1)
    async with Supervisor.open(state_dir) as sup:
        view = await sup.inspect(run.id)
        assert view.state is RunState.RUNNING
        await kill_run(view)


# Hygiene.


def descriptors() -> dict[str, str]:
    """All but the next run's log: an owner at rest has one, or not if it had no moment for it."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            link = os.readlink(f"/proc/self/fd/{name}")
            if not is_next_log(name):
                found[name] = link
        except FileNotFoundError:
            continue
    return found


def children() -> list[str]:
    found: list[str] = []
    for task in os.listdir("/proc/self/task"):
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
            found += Path(f"/proc/self/task/{task}/children").read_text().split()
    return found


async def test_a_hundred_starts_leak_nothing(state_dir: Path) -> None:
    """Descriptors, children, threads, tasks and files stay as many as they were."""
    gc.collect()  # what the tests before have left is not to be taken for ours
    outside = descriptors(), children(), asyncio.all_tasks()
    async with Supervisor.open(state_dir) as sup:

        async def one(number: int) -> None:
            run = await sup.start(Command(argv=["sh", "-c", f"echo {number}; exit 0"]))
            final = await sup.wait(run.id, timeout=PATIENCE)
            assert final.state is RunState.FINISHED

        for number in range(10):
            await one(number)

        def settled() -> bool:
            return not sup._dispatcher.links

        await eventually_async(settled, message="links of ended runs stay")
        await sup.list()  # with this the reading side has its files, too
        before = descriptors(), len(children())
        for number in range(60):
            await one(number)
        await asyncio.gather(*(one(number) for number in range(40)))
        await eventually_async(settled)
        await eventually_async(lambda: len(children()) <= before[1], message="zombies")
        await eventually_async(lambda: len(descriptors()) <= len(before[0]), message="descriptors")
        files = [path for path in state_dir.rglob("*") if path.is_file()]
        assert len([path for path in files if path.parent.parent == state_dir / "runs"]) == 110, "one a run"
        assert list(state_dir.rglob("*.sock")) == []
        assert len(files) < 110 + 8
    await eventually_async(lambda: len(children()) <= len(outside[1]))
    await eventually_async(lambda: len(descriptors()) <= len(outside[0]))
    assert asyncio.all_tasks() == outside[2]
    for path in (state_dir / "runs").rglob("*.log"):
        eventually(lambda path=path: probe_lock(str(path)) is LockState.FREE)  # type: ignore[misc]


async def test_opening_and_closing_leaks_nothing(state_dir: Path) -> None:
    async with Supervisor.open(state_dir) as sup:
        run = await sup.start(Command(argv=["true"]))
        await sup.wait(run.id, timeout=PATIENCE)
    gc.collect()  # what the tests before have left is not to be taken for ours
    before = len(descriptors())
    for _ in range(15):
        async with Supervisor.open(state_dir) as sup:
            await sup.inspect(run.id)
        async with Observer.open(state_dir) as seen:
            await seen.list()
            assert [event async for event in seen.follow(run.id)]
        async with Supervisor.open(state_dir), refused(ErrorCode.STATE_DIR_IN_USE):
            await Supervisor.open(state_dir, wait=0)
    await eventually_async(lambda: len(descriptors()) <= before)


async def test_refused_starts_leak_nothing(runs: Runs) -> None:
    for _ in range(4):  # what is made once, is made now
        await runs.start(["/no/such/program"])
    await eventually_async(lambda: not runs.sup._dispatcher.links)
    before = len(descriptors())
    for _ in range(20):
        run = await runs.start(["/no/such/program"])
        assert run.state is RunState.NOT_STARTED
        async with refused(ErrorCode.IDEMPOTENCY_CONFLICT):
            await runs.sup.start(Command(argv=["other"]), request_id=run.request_id)
    await eventually_async(lambda: not runs.sup._dispatcher.links)
    await eventually_async(lambda: len(descriptors()) <= before)


def test_a_host_whose_directory_is_gone_can_start_elsewhere(state_dir: Path, tmp_path: Path) -> None:
    left = tmp_path / "left"
    left.mkdir()
    facts = host(
        """
        os.chdir(LEFT)
        os.rmdir(LEFT)
        async with Supervisor.open(STATE) as sup:
            try:
                await sup.start(Command(argv=["true"]))
                refused = None
            except SupervisorError as error:
                refused = [error.code.value, error.details["field"]]
            run = await sup.start(Command(argv=["true"], cwd="/"))
            report(refused=refused, outcome=(await sup.wait(run.id, timeout=20)).outcome.to_dict())
        """,
        state_dir,
        tmp_path,
        before=f"LEFT = {str(left)!r}",
    )
    assert facts["refused"] == ["INVALID_REQUEST", "cwd"]
    assert facts["outcome"] == {"kind": "exited", "code": 0, "signal": None}
