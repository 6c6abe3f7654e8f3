"""Whoever forgets to close a `Process` or a `Stream` is told so, once the handle is collected."""

from __future__ import annotations

import asyncio
import gc
import warnings
from typing import Any

from durable_supervisor import Command, RunState, Supervisor, spawn, stream, sync
from tests.contract.runs import Marker

SHORT = Command(argv=["true"])


def forget(handles: list[Any]) -> list[str]:
    """What is said once they are collected."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        handles.clear()
        gc.collect()
    return sorted(str(one.message) for one in caught if "was never closed" in str(one.message))


async def test_the_run_of_a_forgotten_process_goes_on(sup: Supervisor, marker: Marker) -> None:
    process = [await spawn(Command(argv=["sleep", str(marker)]), supervisor=sup)]
    run_id = str(process[0].run_id)
    assert forget(process) == [f"Process of run {run_id} was never closed"]
    assert (await sup.inspect(run_id)).state is RunState.RUNNING
    await sup.stop(run_id, grace=0)


async def test_a_forgotten_stream(sup: Supervisor, marker: Marker) -> None:
    events = [await stream(Command(argv=["sleep", str(marker)]), supervisor=sup).__aenter__()]
    run_id = str(events[0].run_id)
    assert forget(events) == [f"Stream of run {run_id} was never closed"]
    await sup.stop(run_id, grace=0)


async def test_no_word_after_an_end_nor_of_a_detached_one(sup: Supervisor, marker: Marker) -> None:
    waited = await spawn(SHORT, supervisor=sup)
    await waited.wait()
    closed = await spawn(Command(argv=["sleep", str(marker)]), supervisor=sup)
    await closed.close()
    taken = await stream(SHORT, supervisor=sup).__aenter__()
    assert [event.kind async for event in taken][-1] == "run.finished"
    detached = await spawn(SHORT, supervisor=sup, lifetime="detached")
    await sup.wait(str(detached.run_id))
    handles = [waited, closed, taken, detached, stream(SHORT, supervisor=sup)]
    del waited, closed, taken, detached
    assert forget(handles) == []


async def test_the_twins_for_threads(sup: Supervisor, marker: Marker) -> None:
    command = Command(argv=["sleep", str(marker)])

    def begin() -> list[Any]:
        return [sync.spawn(command, supervisor=sup), sync.stream(command, supervisor=sup).__enter__()]

    handles = await asyncio.to_thread(begin)
    runs = [str(one.run_id) for one in handles]
    kinds = ("Process", "Stream")
    expected = [f"{kind} of run {run} was never closed" for kind, run in zip(kinds, runs, strict=True)]
    assert forget(handles) == expected
    for run_id in runs:
        await sup.stop(run_id, grace=0)
