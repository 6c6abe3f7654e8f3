"""Descriptors that a forked copy must not keep: those, and never another's that has the number by then."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Callable

from durable_supervisor.process import forks


def kept_by_a_copy(fd: int) -> bool:
    """Is the descriptor still what it is here in a forked copy of this process?"""
    what = os.fstat(fd)
    return in_a_copy(lambda: os.path.samestat(os.fstat(fd), what))


def in_a_copy(so: Callable[[], bool]) -> bool:
    """Is it so in a forked copy of this process?"""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if so() else 1)
        except OSError:
            os._exit(1)
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


def test_what_a_copy_opens_is_not_closed_by_an_object_of_ours() -> None:
    """The copy has a socket object, too, that knows a number, and closes that when it is collected."""
    ends = [*forks.socketpair(socket.SOCK_STREAM)]

    def collected() -> bool:
        opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(20)]
        ends.clear()
        return all(os.fstat(fd) for fd in opened)

    try:
        assert in_a_copy(collected)
    finally:
        for end in ends:
            forks.close_socket(end)


def test_a_copy_without_a_number_left_keeps_nothing_either() -> None:
    ours, theirs = os.pipe()
    forks.guard(ours)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        assert not kept_by_a_copy(ours)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        forks.close(ours)
        os.close(theirs)
