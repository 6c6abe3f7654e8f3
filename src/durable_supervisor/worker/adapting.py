"""Go through whole runs in the zygote, of programs that never begin.

The interpreter adapts code to what it meets in it, once it has been called some times.  Then it looks at
fewer objects, so that a worker writes to fewer pages (see `rehearsal`); and where all of it has been adapted
before there are workers, what they do leaves their memory more alike (see `process.samepage`).
"""

from __future__ import annotations

import os
import socket

from ..process.channel import encode_frame
from ..process.clock import Clock
from ..process.failpoints import any_armed
from ..process.gate import PausedProgram
from . import resting
from .capture import Capture
from .main import attempt
from .model import SPEC, make_log
from .poller import Poller
from .record import Recorder
from .redact import OutputFilter
from .rehearsal import open_log
from .spec import FREE, receive_spec

_ADAPTED_AFTER = 10  # calls of a function; CPython 3.11 takes eight, later versions fewer
_STOP: dict[str, object] = {"op": "stop", "id": "stop", "grace": 0}
_SOME_OUTPUT = b"output\n"
# Of CPython's pools of small objects: each has places of one size, from 16 to 512 bytes.
_POOL_BYTES = 16 * 1024
_FIRST_PLACE = 48
_STEP = 16
_LARGEST = 512
_MOST_GAPS = 4096  # of one size; two thousand in all are usual
_BYTES_OVERHEAD = 33
_taken: list[object] = []


def adapt() -> None:
    """Have the interpreter adapt what a run calls, its end included: by runs whose program never begins."""
    if any_armed():  # these runs would meet the points that are meant for others
        return
    try:
        for _ in range(_ADAPTED_AFTER):
            _stop_one()
            _capture_some()
            _let_one_through()
            resting.go_through()
    except Exception:  # noqa: BLE001  (what is wrong here, a run tells better)
        return


def _stop_one() -> None:
    """A run that is stopped while its program waits at the gate."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(encode_frame(SPEC) + encode_frame(_STOP))
        spec = receive_spec(theirs)
        tending = None if spec is None else attempt(spec, make_log(), theirs, None)
        if tending is None:
            raise ChildProcessError("no program")  # the next would fail, too
        tending.part(FREE)


def _capture_some() -> None:
    """What such a program does not do: it writes."""
    poller = Poller()
    read, write = os.pipe2(os.O_CLOEXEC)
    log = open_log(Clock())
    capture = Capture("stdout", read, OutputFilter([b"rehearsal"], tokens=True), Recorder(log, poller, _hear))
    try:
        capture.start(poller)
        os.write(write, _SOME_OUTPUT)
        os.close(write)
        capture.read_all(poller, len(_SOME_OUTPUT))
        log.flush()
    finally:
        capture.close(poller)
        log.close()
        poller.close()


def _hear(head: int) -> None:
    """Nobody waits for it."""


def _let_one_through() -> None:
    """The gate of a program that is not there."""
    gate_read, gate_write = os.pipe2(os.O_CLOEXEC)
    failure_read, failure_write = os.pipe2(os.O_CLOEXEC)
    os.close(failure_write)
    PausedProgram(0, gate_write, failure_read, "", None).release()
    os.close(gate_read)


def use_up_gaps() -> None:
    """Take each free place among the objects that are there now, for good.

    What a worker makes lies together then, on pages that it has to have for itself anyway, and not on fifty
    others that all workers could share.
    """
    for size in range(_STEP, _LARGEST + 1, _STEP):
        for _ in range(_MOST_GAPS):
            one = _object_of(size)
            if id(one) % _POOL_BYTES == _FIRST_PLACE:
                break  # it is the first one in a new pool: there were no gaps left
            _taken.append(one)


def _object_of(size: int) -> object:
    """One that takes a place of so many bytes."""
    if size > _BYTES_OVERHEAD:
        return bytes(size - _BYTES_OVERHEAD)
    return object() if size == _STEP else float(len(_taken))
