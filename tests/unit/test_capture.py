"""A stream's capture from a pipe of the kernel into a log: all of it, however wide the pipe is."""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path

import pytest

from durable_supervisor.model.events import Kind
from durable_supervisor.process.libc import give_memory_back
from durable_supervisor.worker.capture import Capture
from durable_supervisor.worker.poller import Poller
from durable_supervisor.worker.record import Recorder
from durable_supervisor.worker.redact import OutputFilter
from durable_supervisor.worker.width import NARROW, WIDE
from tests.unit.runlog_helpers import open_writer, paths_in, read_all

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has pipes of any size")

SECRET = b"a-registered-value"
# Blocks of another size than any read, so that the secret stands across the ends of reads.
BLOCKS = [b"%07d " % number + b"x" * 50_000 for number in range(200)]
FLOOD = SECRET.join(BLOCKS)
RECORDED = b"[redacted]".join(BLOCKS)


def captured(tmp_path: Path, *, may_widen: bool, window: int | None = None) -> tuple[list[bytes], int]:
    """The data of each event, and the most that the pipe held, of a program that always fills it."""
    log = open_writer(paths_in(tmp_path))
    poller = Poller()
    recorder = Recorder(log, poller, lambda head: None)
    read, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    output = OutputFilter([SECRET], tokens=True)
    capture = Capture("stdout", read, output, recorder, window=window, may_widen=may_widen)
    written = widest = 0
    while written < len(FLOOD):
        written += os.write(write, FLOOD[written : written + WIDE])
        widest = max(widest, fcntl.fcntl(write, fcntl.F_GETPIPE_SZ))
        capture.read(poller)
        recorder.flush()
    os.close(write)
    capture.read_all(poller, len(FLOOD))
    recorder.finish(Kind.RUN_FINISHED, {})
    log.close()
    give_memory_back()  # the thresholds are the process's own
    return [event.data for event in read_all(paths_in(tmp_path)) if event.kind == Kind.OUTPUT], widest


def test_a_flood_is_read_in_larger_pieces_and_recorded_in_small_ones(tmp_path: Path) -> None:
    pieces, widest = captured(tmp_path, may_widen=True)
    assert b"".join(pieces) == RECORDED
    assert sum(map(len, pieces)) / len(pieces) > NARROW // 2
    assert max(map(len, pieces)) < 2 * NARROW
    assert widest == WIDE


@pytest.mark.parametrize(("may_widen", "window"), [(False, None), (True, 1 << 30)])
def test_with_a_window_or_a_small_cap_the_pipe_stays_as_it_is(
    tmp_path: Path, may_widen: bool, window: int | None
) -> None:
    pieces, widest = captured(tmp_path, may_widen=may_widen, window=window)
    assert b"".join(pieces) == RECORDED
    assert widest == NARROW
