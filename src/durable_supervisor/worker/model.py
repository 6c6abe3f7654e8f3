"""A worker without a run: its memory is the image that all workers of its zygote share while they idle.

It goes the whole way of a worker, up to where it would wait for its program.  That one is never let through
the gate, and goes with it: nobody's code runs.
"""

from __future__ import annotations

import os
import socket
import sys

from ..process.channel import encode_frame
from ..process.clock import Clock
from ..runlog.format import SegmentHeader
from .spec import FREE, STDIN_NULL, Spec

RUN = "rehearsa1"
_MOST_SECONDS = 10.0
_PATH, _NAME = os.path.split(sys.executable)  # of all programs the one that is there for certain
_ARGV = [_NAME, "-c", "true"]
SPEC: dict[str, object] = dict.fromkeys(Spec.__slots__) | {
    "model": True,
    "run_id": RUN,
    "attempt": 1,
    "runs_dir": "/nonexistent",
    "shard": "0000",
    "argv": _ARGV,
    "cwd": "/",
    "env": {"PATH": _PATH, "LANG": "C.UTF-8"},
    "umask": 0o077,
    "secrets": [],
    "shown_argv": _ARGV,
    "shown_cwd": "/",
    "completion": "leader",
    "grace": 0.0,  # nobody's program would make anything of a TERM
    "max_stdout_bytes": 1 << 26,
    "max_stderr_bytes": 1 << 26,
    "on_limit": "truncate",
    "priority": 0,
    "queued": False,
    "stdin": STDIN_NULL,
    "redact_tokens": True,
}


def make_log() -> int:
    """The descriptor of a run log that is memory."""
    detail: dict[str, object] = {"argv": _ARGV, "limits": {"grace": 10.0}, "digests": {"argv": "0"}}
    header = SegmentHeader("dir", RUN, 1, 1, 1, "boot", Clock().wall_ns(), detail)
    log = os.memfd_create("model-log", os.MFD_CLOEXEC)
    os.write(log, header.encode())
    return log


def present(handover: socket.socket) -> None:
    """Be a supervisor to the worker that waits at the other end, until it has gone.  Never returns."""
    try:
        channel, theirs = socket.socketpair()
        channel.settimeout(_MOST_SECONDS)
        channel.sendall(encode_frame(SPEC))
        socket.send_fds(handover, [b"\1"], [make_log(), theirs.fileno()])
        theirs.close()
        last_word = FREE.encode()
        while (heard := channel.recv(4096)) and last_word not in heard:
            pass  # and then it is let go: it would wait for another run
    finally:
        os._exit(0)
