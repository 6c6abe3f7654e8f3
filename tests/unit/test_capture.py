"""A stream's capture from a pipe of the kernel into a log: all of it, however wide the pipe is."""

from __future__ import annotations

import fcntl
import os
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from durable_supervisor.model.events import Kind
from durable_supervisor.process.libc import give_memory_back
from durable_supervisor.worker.capture import Capture
from durable_supervisor.worker.connections import Connection
from durable_supervisor.worker.controls import Controls
from durable_supervisor.worker.poller import Poller
from durable_supervisor.worker.record import Recorder
from durable_supervisor.worker.redact import OutputFilter
from durable_supervisor.worker.width import NARROW, WIDE, is_full
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


class Program:
    """Its two pipes, and the worker's side of them, turned by hand; ``awaited``: as `Capture` asks."""

    def __init__(self, tmp_path: Path, *, awaited: bool = False, flags: int = 0) -> None:
        self.paths = paths_in(tmp_path)
        self.poller = Poller()
        self.log = open_writer(self.paths)
        self.recorder = Recorder(self.log, self.poller, lambda head: None)
        self.ends: dict[str, int] = {}
        self.captures: dict[str, Capture] = {}
        self.written: dict[str, bytes] = {"stdout": b"", "stderr": b""}
        for stream in self.written:
            read, self.ends[stream] = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK | flags)
            output = OutputFilter([], tokens=False)
            self.captures[stream] = Capture(stream, read, output, self.recorder, awaited=lambda: awaited)
        self.recorder.captures = list(self.captures.values())
        for capture in self.captures.values():
            capture.start(self.poller)

    def writes(self, text: bytes, stream: str = "stdout") -> None:
        os.write(self.ends[stream], text)
        self.written[stream] += text

    def behind(self) -> bool:
        return self.captures["stdout"].seen < len(self.written["stdout"])

    def turns(self) -> None:
        """One turn of the worker's loop, which waits for nothing."""
        self.poller.at("no wait", 0.0, lambda: None)
        self.poller.turn()

    def chats(self) -> None:
        """Line by line, far longer than it takes to be read later, if it ever is."""
        for number in range(200):
            self.writes(b"%d\n" % number)
            self.turns()

    def chats_until_a_pause(self) -> None:
        deadline = time.monotonic() + 30.0
        while not self.behind():
            assert time.monotonic() < deadline
            self.writes(b"a line\n")
            self.turns()

    def fills(self) -> None:
        """Until the next write would wait."""
        with suppress(BlockingIOError):
            while True:
                self.writes(b".")

    def is_read(self) -> None:
        while self.behind():
            self.poller.turn()  # its timer is all that is waited for

    def ends_now(self) -> list[tuple[str | None, bytes]]:
        """All that was recorded, which is all that was written."""
        for end in self.ends.values():
            os.close(end)
        for capture in self.captures.values():
            capture.read_all(self.poller, len(FLOOD))
            assert not capture.open
        self.recorder.finish(Kind.RUN_FINISHED, {})
        self.log.close()
        self.poller.close()
        events = [event for event in read_all(self.paths) if event.kind == Kind.OUTPUT]
        for stream, written in self.written.items():
            assert b"".join(event.data for event in events if event.stream == stream) == written
        return [(event.stream, event.data) for event in events]


def test_a_chatty_stream_is_read_a_little_later_and_wholly(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.chats_until_a_pause()
    program.is_read()
    program.chats_until_a_pause()
    program.writes(b"and what comes in the pause before its end")
    program.ends_now()


def test_the_other_stream_does_not_overtake_it(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.chats_until_a_pause()
    program.writes(b"!", "stderr")
    program.turns()
    assert not program.behind()
    assert program.ends_now()[-1] == ("stderr", b"!")


def test_what_else_is_recorded_comes_behind_what_was_written_before(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.chats_until_a_pause()
    program.recorder.record(Kind.CONTROL_RECEIVED, {"id": "stop"})
    assert not program.behind()
    program.ends_now()
    assert read_all(program.paths)[-2].kind == Kind.CONTROL_RECEIVED


def test_its_end_in_a_pause_is_heard_of_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # It shall not be over while others have the processor.
    monkeypatch.setattr("durable_supervisor.worker.capture.PAUSE_SECONDS", 0.5)
    program = Program(tmp_path)
    program.chats_until_a_pause()
    program.writes(b"its last")
    program.turns()
    assert program.behind(), "of what it writes nobody hears"
    os.close(program.ends["stdout"])
    while program.captures["stdout"].open:
        program.poller.turn()
    program.ends["stdout"] = os.open(os.devnull, os.O_WRONLY)
    program.ends_now()


def test_the_end_of_a_pause_reads_what_it_has_brought(tmp_path: Path) -> None:
    program = Program(tmp_path)
    for _ in range(100):
        program.chats_until_a_pause()
        program.writes(b"in the pause\n")
        program.is_read()
    program.writes(b"behind it\n")
    while program.behind():
        program.poller.turn()
    program.ends_now()


def test_nobody_who_waits_for_output_waits_for_a_pause(tmp_path: Path) -> None:
    program = Program(tmp_path, awaited=True)
    program.chats()
    assert not program.behind()
    program.ends_now()


def test_who_begins_to_wait_in_a_pause_gets_what_there_is(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.chats_until_a_pause()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        follower = Connection(theirs, os.getpid(), os.getuid())
        watch: dict[str, object] = {"op": "watch", "after": program.recorder.told_head}
        Controls(program.recorder, {}).on_message(follower, watch, b"")
    assert not program.behind()
    program.ends_now()


@pytest.mark.parametrize("caught_up", [False, True], ids=["until its end", "until the other stream was read"])
def test_who_may_have_waited_for_a_pause_never_does_again(tmp_path: Path, caught_up: bool) -> None:
    # Packets, each of which takes a slot of the pipe however small it is (pipe(7)).
    program = Program(tmp_path, flags=os.O_DIRECT)
    program.chats_until_a_pause()
    program.fills()
    if caught_up:
        program.recorder.catch_up()
    program.is_read()
    program.chats()
    assert not program.behind()
    program.ends_now()


def test_a_pipe_is_full_when_it_has_no_slot_left(tmp_path: Path) -> None:
    program = Program(tmp_path, flags=os.O_DIRECT)
    with os.fdopen(os.dup(program.ends["stdout"]), "wb") as end:
        other = Path(f"/proc/self/fd/{end.fileno()}")
        with other.open("rb", buffering=0) as reader:
            assert not is_full(reader.fileno())
            program.fills()
            assert is_full(reader.fileno())
            program.turns()  # one packet is read
            assert not is_full(reader.fileno())
    while program.behind():
        program.turns()
    program.ends_now()
