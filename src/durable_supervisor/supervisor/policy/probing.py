"""Run the probe, once for each process, when a request first needs to know."""

from __future__ import annotations

import math
import os
import select
import signal
import threading
import time
from contextlib import suppress

from ...process.shortage import is_shortage
from ...sandbox.facts import Facts
from ...sandbox.probe import PROBES
from ..workers.spawn import spawn_probe

_SECONDS = 10.0  # it takes some 0.1; a machine that is that slow has not told
# For how many seconds an answer holds: what is missing may have been short, or be allowed later.
_FAILED, _LACKING = 30.0, 300.0
_PIECE = 65536

_lock = threading.Lock()
# By effective user, since a process that changes it may do other things: facts, and until when they hold.
_known: dict[int, tuple[Facts, float]] = {}


def machine_facts() -> Facts:
    """What this machine can enforce for this user; blocking, at the first call.

    A probe that fails has found nothing.  Raises OSError where we ourselves are too short of something
    to ask: that says nothing about the machine.
    """
    user = os.geteuid()
    with _lock:
        facts, until = _known.get(user, (Facts(), 0.0))
        if time.monotonic() >= until:
            facts = probe()
            _known[user] = facts, time.monotonic() + _lifespan(facts)
        return facts


def _lifespan(facts: Facts) -> float:
    if facts.failed:
        return _FAILED
    return math.inf if facts.complete else _LACKING


def probe() -> Facts:
    """Ask the machine now.  Raises as `machine_facts`."""
    ours, theirs = os.pipe2(os.O_CLOEXEC)
    try:
        pid = spawn_probe(theirs)
    except OSError as error:
        os.close(ours)
        if is_shortage(error):
            raise
        return Facts.from_lines(b"", f"the probe cannot be started: {error.strerror}")
    finally:
        os.close(theirs)
    try:
        output, ended = _read(ours, time.monotonic() + _SECONDS)
    finally:
        os.close(ours)
        _end(pid)
    return Facts.from_lines(output, "the probe ended early" if ended else f"no answer within {_SECONDS:g} s")


def _read(fd: int, deadline: float) -> tuple[bytes, bool]:
    """What is said until the deadline, and whether that was all."""
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    said = bytearray()
    while (left := deadline - time.monotonic()) > 0 and poller.poll(left * 1000):
        piece = os.read(fd, _PIECE)
        said += piece
        if not piece or said.count(b"\n") == len(PROBES):
            return bytes(said), True
    return bytes(said), False


def _end(pid: int) -> None:
    """With what it started, should it hang: it leads a group of its own.

    Where the host reaps its children by itself, a number counts only while its process is proven to live.
    """
    try:
        with suppress(ProcessLookupError):
            fd = os.pidfd_open(pid)
            try:
                if not select.select([fd], [], [], 0)[0]:
                    os.killpg(pid, signal.SIGKILL)
            finally:
                os.close(fd)
        os.waitpid(pid, 0)
    except OSError:
        return
