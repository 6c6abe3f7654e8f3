"""Busy supervisors, and their workers that wait for a next run."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from durable_supervisor import Command, Supervisor
from durable_supervisor.model.view import RunView
from durable_supervisor.process.tree import children_of
from tests.process.test_zygote import BELL, IMAGE, alive, worker_pid, zygotes
from tests.support import eventually_async

_FREE = {"0", "1", "2", "3"}  # what a worker without a run has open: stdio, and where the next run comes


@asynccontextmanager
async def busy(state_dir: Path) -> AsyncIterator[Supervisor]:
    async with Supervisor.open(state_dir, zygote=True) as sup:
        yield sup


async def ended(sup: Supervisor, *argv: str, **options: Any) -> RunView:
    """A run that is over, and its worker waiting for another one or gone: else the next run had a new one."""
    run = await sup.start(Command(argv=list(argv), **options))
    seen = await sup.wait(run.id, timeout=60)
    worker = worker_pid(seen)
    await eventually_async(lambda: is_free(worker) or not alive(worker))
    return seen


async def text_of(sup: Supervisor, run: RunView) -> str:
    page = await sup.events(run.id)
    assert [event.seq for event in page.events] == list(range(1, len(page.events) + 1))
    return "".join(event.text for event in page.events if event.kind == "output")


def free_workers() -> list[int]:
    """Those that are waiting for their next run."""
    return [pid for zygote in zygotes() for pid in children_of(zygote) if is_free(pid)]


def is_free(pid: int) -> bool:
    """Has it had a run, and nothing open but stdio, its channel, the image, and what it keeps of /proc?"""
    try:
        opened = {fd: os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
    except OSError:
        return False
    kept = {fd for fd, path in opened.items() if path.startswith(f"/proc/{pid}/")}
    known = {fd for fd, path in opened.items() if path.startswith((IMAGE, BELL))}
    return bool(kept) and opened.keys() - kept - known == _FREE


async def a_free_worker(sup: Supervisor) -> int:
    """That of the next run.  Runs are made until one was short enough to leave its worker for the next."""

    async def left_by_a_run() -> int:
        worker = worker_pid(await ended(sup, "true"))
        return worker if worker == next_worker(sup) else 0

    return int(await eventually_async(left_by_a_run))


def next_worker(sup: Supervisor) -> int:
    """The free one that has the next run; 0 where none is.

    Its owner hears of it a moment after it can be seen: the run that starts between the two has another
    worker, and then two are free.
    """
    free = sup._dispatcher._workers._spare._free
    pulse = free[-1]._pulse if free else None
    return 0 if pulse is None else pulse.pid
