"""The runs that a zygote goes through leave nothing in it."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable

import pytest

from durable_supervisor.process.samepage import merge
from durable_supervisor.process.tree import children_of
from durable_supervisor.worker import adapting, resting


def in_child(work: Callable[[], bool]) -> int:
    """Its exit status: 0 if it says yes."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def state() -> tuple[object, ...]:
    gc.collect()
    umask = os.umask(0)
    os.umask(umask)
    threads = os.listdir("/proc/self/task")
    return sorted(os.listdir("/proc/self/fd")), children_of(os.getpid()), threads, umask, os.getcwd()


@pytest.mark.parametrize("shares", [True, False], ids=["shares", "shares-nothing"])
def test_adapting_leaves_a_process_as_it_was(shares: bool) -> None:
    def is_as_before() -> bool:
        merger = merge.prepare(3) if shares else None
        if merger is not None:
            resting.use(merger)
        before = state()
        adapting.adapt()
        return state() == before

    assert in_child(is_as_before) == 0
