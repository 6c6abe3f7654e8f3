"""How much of a pipe is read at once, on pipes of the kernel."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator

import pytest

from durable_supervisor.process.libc import give_memory_back
from durable_supervisor.worker.poller import Poller
from durable_supervisor.worker.width import NARROW, STEADY, WIDE, Width

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has pipes of any size")


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe2(os.O_NONBLOCK)
    yield ends
    for end in ends:
        os.close(end)
    give_memory_back()  # the thresholds are the process's own


@pytest.fixture
def poller() -> Iterator[Poller]:
    poller = Poller()
    yield poller
    poller.close()


def held(fd: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ)


def widened(fd: int, poller: Poller) -> Width:
    width = Width(fd)
    for _ in range(STEADY):
        assert width.size == NARROW
        width.note(NARROW, poller)
    return width


def armed(fd: int, poller: Poller) -> bool:
    return poller.armed(f"width {fd}")


def test_a_program_that_writes_without_a_pause_gets_a_wide_pipe(
    pipe: tuple[int, int], poller: Poller
) -> None:
    width = widened(pipe[0], poller)
    assert (width.size, held(pipe[0])) == (WIDE, WIDE)
    width.note(WIDE, poller)
    width.note(NARROW, poller)  # not all of it, but more than would have fitted before
    assert width.size == WIDE


def test_one_that_pauses_keeps_its_narrow_one(pipe: tuple[int, int], poller: Poller) -> None:
    width = Width(pipe[0])
    for _ in range(5):
        for _ in range(STEADY - 1):
            width.note(NARROW, poller)
        width.note(NARROW - 1, poller)
    assert (width.size, held(pipe[0])) == (NARROW, NARROW)


def test_a_wide_pipe_is_given_back_at_the_first_pause(pipe: tuple[int, int], poller: Poller) -> None:
    width = widened(pipe[0], poller)
    assert armed(pipe[0], poller)
    width.note(100, poller)
    assert (width.size, held(pipe[0])) == (NARROW, NARROW)
    assert not armed(pipe[0], poller)


def test_it_is_given_back_by_itself_where_nothing_comes_any_more(
    pipe: tuple[int, int], poller: Poller
) -> None:
    """The last read was a large one: no other tells that the flood is over."""
    width = widened(pipe[0], poller)
    width.note(WIDE - 1, poller)
    poller.turn()
    assert width.size == WIDE  # something has come since it was widened
    poller.turn()
    assert (width.size, held(pipe[0])) == (NARROW, NARROW)
    assert not armed(pipe[0], poller)


def test_what_is_closed_is_not_looked_at_again(pipe: tuple[int, int], poller: Poller) -> None:
    width = widened(pipe[0], poller)
    width.close(poller)
    assert width.size == NARROW
    assert not armed(pipe[0], poller)


def test_what_is_in_a_wide_pipe_stays_in_it(pipe: tuple[int, int], poller: Poller) -> None:
    width = widened(pipe[0], poller)
    os.write(pipe[1], b"x" * WIDE)
    width.note(100, poller)  # what was read just before
    assert width.size == WIDE  # the kernel refuses (EBUSY)
    assert len(os.read(pipe[0], WIDE)) == WIDE
    width.note(100, poller)
    assert width.size == NARROW


def test_a_size_that_the_program_has_chosen_is_its_own(pipe: tuple[int, int], poller: Poller) -> None:
    chosen = fcntl.fcntl(pipe[1], fcntl.F_SETPIPE_SZ, 2 * WIDE)
    width = widened(pipe[0], poller)
    assert (width.size, held(pipe[0])) == (WIDE, chosen)
    width.note(100, poller)
    assert (width.size, held(pipe[0])) == (NARROW, chosen)


def test_what_is_no_pipe_stays_as_it_is(poller: Poller) -> None:
    master, slave = os.openpty()
    try:
        assert widened(master, poller).size == NARROW
    finally:
        os.close(master)
        os.close(slave)
