"""Go through what a start does, without doing any of it.

A forked process shares its parent's memory until it writes to it, and in Python
to look at an object is to write to it.  The first write to each page costs a
fault and a copy, microseconds each and hundreds of them.  A worker that waits
for its run has the time to take them beforehand: those of a start, for what comes
at a run's end a run that idles would hold in vain.

Where the kernel tells which pages those are, and copies them when it is asked to, one
rehearsal does for all workers of a zygote.
"""

from __future__ import annotations

import os
import select
import socket

from ..model.events import Kind
from ..process import gate
from ..process.channel import FrameParser, encode_frame
from ..process.clock import Clock
from ..process.failpoints import any_armed
from ..process.identity import identity_from_stat, read_stat, self_identity
from ..process.own_pages import take, written_by
from ..process.program import Program, StartFailure, Stdio, canonical, check_cwd, resolve
from ..runlog.create import read_header
from ..runlog.paths import RunPaths
from ..runlog.writer import LogWriter
from .model import RUN, SPEC, make_log
from .spec import Spec

_pages = b""  # to which a rehearsal writes, as `own_pages` tells them; empty where it could not


def note_pages() -> None:
    """Rehearse once for all that will be forked from this process.

    A worker that rehearses itself leaves traces of that in memory which it would share with others while it
    idles (see `process.samepage`).
    """
    global _pages
    if any_armed():  # a rehearsal would meet the points that are meant for a run
        return
    try:
        _pages = written_by(_go_through)
    except OSError:
        return


def rehearse() -> None:
    """Leaves nothing behind but warmed memory: no descriptor, child, signal or file.

    Where something for it is not to be had (descriptors, say, or memory that is a file) the run does
    without: it may be on its way to this process already, and would be lost with it.
    """
    if take(_pages):
        return
    try:
        _go_through()
    except OSError:
        pass


def _go_through() -> None:
    message, blob = FrameParser().feed(encode_frame(SPEC))[0]
    spec = Spec.from_message(message, blob)
    clock = Clock()
    log = open_log(clock)
    try:
        _start(spec, log)
    finally:
        log.close()
    _talk()


def open_log(clock: Clock) -> LogWriter:
    """In memory."""
    fd = make_log()
    header, _ = read_header(fd)
    assert header is not None
    return LogWriter(
        fd,
        RunPaths("/nonexistent", "0000", RUN),
        header,
        segment_bytes=1 << 20,
        stdout_cap=1 << 26,
        stderr_cap=1 << 26,
        truncate=True,
        clock=clock,
    )


def _start(spec: Spec, log: LogWriter) -> None:
    me = self_identity().to_dict()
    log.append(Kind.RUN_DISPATCHED, {"attempt": 1, "identity": me, "argv": spec.argv, "cwd": "/"})
    log.flush()
    try:
        check_cwd("/")
        path = resolve(spec.argv[0], "/", spec.env["PATH"])
        canonical(path)
        gate.rehearse(Program(path, spec.argv, "/", spec.env, 0o077), Stdio(0, 1, 2))
    except StartFailure:
        pass  # a run tells better
    stat = read_stat(os.getpid())
    if stat is not None:
        log.append(Kind.PROGRAM_SPAWNED, {"identity": identity_from_stat(stat).to_dict(), "requested": "sh"})
    log.append(Kind.PROGRAM_RELEASED, {})
    log.flush()


def _talk() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, select.epoll() as epoll:
        epoll.register(ours, select.EPOLLIN)
        theirs.send(encode_frame({"type": "released", "head": 3}))
        epoll.poll(0)
        FrameParser().feed(ours.recv(4096))
