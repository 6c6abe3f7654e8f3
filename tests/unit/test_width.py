"""How much of a pipe is read at once, on pipes of the kernel."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator

import pytest

from durable_supervisor.process.libc import give_memory_back
from durable_supervisor.worker.width import NARROW, STEADY, WIDE, Width

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has pipes of any size")


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe2(os.O_NONBLOCK)
    yield ends
    for end in ends:
        os.close(end)
    give_memory_back()  # the thresholds are the process's own


def held(fd: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)


def widened(fd: int) -> Width:
    width = Width(fd)
    for _ in range(STEADY):
        assert width.size == NARROW
        width.note(NARROW)
    return width


def test_a_program_that_writes_without_a_pause_gets_a_wide_pipe(pipe: tuple[int, int]) -> None:
    width = widened(pipe[0])
    assert (width.size, held(pipe[0])) == (WIDE, WIDE)
    width.note(WIDE)
    width.note(NARROW)  # not all of it, but more than would have fitted before
    assert width.size == WIDE


def test_one_that_pauses_keeps_its_narrow_one(pipe: tuple[int, int]) -> None:
    width = Width(pipe[0])
    for _ in range(5):
        for _ in range(STEADY - 1):
            width.note(NARROW)
        width.note(NARROW - 1)
    assert (width.size, held(pipe[0])) == (NARROW, NARROW)


def test_a_wide_pipe_is_given_back_at_the_first_pause(pipe: tuple[int, int]) -> None:
    width = widened(pipe[0])
    width.note(100)
    assert (width.size, held(pipe[0])) == (NARROW, NARROW)


def test_what_is_in_a_wide_pipe_stays_in_it(pipe: tuple[int, int]) -> None:
    width = widened(pipe[0])
    os.write(pipe[1], b"x" * WIDE)
    width.note(100)  # what was read just before
    assert width.size == WIDE  # the kernel refuses (EBUSY)
    assert len(os.read(pipe[0], WIDE)) == WIDE
    width.note(100)
    assert width.size == NARROW


def test_what_is_no_pipe_stays_as_it_is() -> None:
    master, slave = os.openpty()
    try:
        assert widened(master).size == NARROW
    finally:
        os.close(master)
        os.close(slave)
