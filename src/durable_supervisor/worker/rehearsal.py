"""Go through what a start does, without doing any of it.

A forked process shares its parent's memory until it writes to it, and in Python
to look at an object is to write to it.  The first write to each page costs a
fault and a copy, microseconds each and hundreds of them.  A worker that waits
for its run has the time to take them beforehand: those of a start, for what comes
at a run's end a run that idles would hold in vain.

The zygote goes through all of it, and more than once.  Code that the interpreter has
adapted to what it meets looks at fewer objects, so at fewer pages, in every worker.
"""

from __future__ import annotations

import os
import select
import socket

from ..model.enforcement import unconfined
from ..model.events import Kind
from ..process import gate, tree
from ..process.channel import FrameParser, encode_frame
from ..process.clock import Clock
from ..process.identity import identity_from_stat, read_stat, self_identity
from ..process.program import Program, StartFailure, Stdio, check_cwd, resolve
from ..process.usage import Usage
from ..runlog.create import read_header
from ..runlog.format import SegmentHeader
from ..runlog.paths import RunPaths
from ..runlog.writer import LogWriter
from .ending import make_receipt, outcome_of
from .ladder import Ladder
from .redact import OutputFilter
from .spec import Spec

_RUN = "rehearsa1"
_REQUEST: dict[str, object] = {
    name: None for name in Spec.__slots__ if name not in ("stdin_bytes", "env", "argv", "secrets")
} | {"env": {"PATH": os.defpath, "LANG": "C.UTF-8"}, "argv": ["sh", "-c", "true"], "secrets": []}


_ADAPTED_AFTER = 10  # calls of a function; CPython 3.11 takes eight, later versions fewer


def adapt() -> None:
    """Have the interpreter adapt what a run calls, its end included."""
    for _ in range(_ADAPTED_AFTER):
        rehearse(to_the_end=True)


def rehearse(*, to_the_end: bool = False) -> None:
    """Leaves nothing behind but warmed memory: no descriptor, child, signal or file.

    Where something for it is not to be had (descriptors, say, or memory that is a file) the run does
    without: it may be on its way to this process already, and would be lost with it.
    """
    try:
        _go_through(to_the_end)
    except OSError:
        pass


def _go_through(to_the_end: bool) -> None:
    message, blob = FrameParser().feed(encode_frame(_REQUEST))[0]
    spec = Spec.from_message(message, blob)
    clock = Clock()
    log_fd = os.memfd_create("rehearsal")
    try:
        log = _open_log(log_fd, clock)
        _start(spec, log)
        if to_the_end:
            _tend(log, clock)
    finally:
        os.close(log_fd)
    _talk()


def _open_log(fd: int, clock: Clock) -> LogWriter:
    detail: dict[str, object] = {"argv": ["true"], "limits": {"grace": 10.0}, "digests": {"argv": "0"}}
    header = SegmentHeader("dir", _RUN, 1, 1, 1, "boot", clock.wall_ns(), detail)
    os.write(fd, header.encode())
    found, _ = read_header(fd)
    return LogWriter(
        fd,
        RunPaths("/nonexistent", "0000", _RUN),
        found or header,
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
        os.path.realpath(path)
        gate.rehearse(Program(path, spec.argv, "/", spec.env, 0o077), Stdio(0, 1, 2))
    except StartFailure:
        pass  # a system without sh
    stat = read_stat(os.getpid())
    if stat is not None:
        log.append(Kind.PROGRAM_SPAWNED, {"identity": identity_from_stat(stat).to_dict(), "requested": "sh"})
    log.append(Kind.PROGRAM_RELEASED, {})
    log.flush()


def _tend(log: LogWriter, clock: Clock) -> None:
    for name in ("stdout", "stderr"):
        log.append_output(name, OutputFilter([b"rehearsal"], tokens=True).feed(b"output\n"))
    log.flush()
    tree.children_of(os.getpid())
    tree.descendants(os.getpid())
    Ladder(1.0, 0.0).step(0.5)
    log.append(Kind.PROGRAM_EXITED, {"code": 0, "signal": None})
    receipt = make_receipt(
        attempt=1,
        outcome=outcome_of(None, 0, None),
        usage=Usage(),
        started_ns=clock.wall_ns(),
        finished_ns=clock.wall_ns(),
        duration_ns=clock.elapsed_ns(),
        output={"stdout": {"bytes": 1, "dropped": log.dropped("stdout"), "complete": True}},
        stdin_bytes=0,
        survivors=[],
        stop=None,
        cleanup_confirmed=True,
        run_id=_RUN,
        executable=None,
        enforcement=unconfined(),
    )
    log.append(Kind.RUN_FINISHED, receipt)
    log.flush()


def _talk() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, select.epoll() as epoll:
        epoll.register(ours, select.EPOLLIN)
        theirs.send(encode_frame({"type": "released", "head": 3}))
        epoll.poll(0)
        FrameParser().feed(ours.recv(4096))
