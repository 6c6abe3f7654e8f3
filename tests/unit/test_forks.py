"""Descriptors that a forked copy must not keep: those, and never another's that has the number by then."""

from __future__ import annotations

import os

from durable_supervisor.process import forks


def kept_by_a_copy(fd: int) -> bool:
    """Is the descriptor still open in a forked copy of this process?"""
    pid = os.fork()
    if pid == 0:
        try:
            os.fstat(fd)
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_copy_keeps_nothing_that_is_guarded() -> None:
    ours, theirs = os.pipe()
    forks.guard(ours)
    try:
        assert not kept_by_a_copy(ours)
        assert kept_by_a_copy(theirs)
    finally:
        forks.close(ours)
        os.close(theirs)


def test_a_number_that_is_anothers_by_now_is_left_alone() -> None:
    """Somebody has closed a guarded descriptor unknown to us, and the host has opened its own."""
    ours, theirs = os.pipe()
    forks.guard(ours)
    os.close(ours)
    again, other = os.pipe()
    try:
        os.dup2(again, ours)
        assert kept_by_a_copy(ours)
    finally:
        forks.close(ours)
        for fd in {again, other, theirs} - {ours}:
            os.close(fd)
