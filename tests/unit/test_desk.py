"""A worker's desk while something is short: it looks away for a moment, and goes on."""

from __future__ import annotations

import errno
import os
import resource
import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from durable_supervisor.process.channel import FrameParser, encode_frame
from durable_supervisor.runlog.reader import LogReader
from durable_supervisor.worker.connections import Connection, ControlSocket
from durable_supervisor.worker.desk import Desk
from durable_supervisor.worker.poller import Poller
from tests.support import PATIENCE
from tests.unit.runlog_helpers import open_writer, paths_in


@contextmanager
def no_descriptor() -> Iterator[None]:
    """The next one to be opened fails with EMFILE."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def pong(connection: Connection, message: dict[str, object], blob: bytes) -> None:
    connection.send({"type": "pong"})


def turns(poller: Poller, seconds: float) -> int:
    count, until = 0, time.monotonic() + seconds
    poller.at("until", until, lambda: None)
    while time.monotonic() < until:
        poller.turn()
        count += 1
    return count


def turns_until(poller: Poller, so: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not so():
        assert time.monotonic() < deadline
        poller.at("look", time.monotonic() + 0.01, lambda: None)
        poller.turn()


def test_a_peer_that_gets_no_descriptor_waits_and_costs_nothing(tmp_path: Path) -> None:
    poller = Poller()
    control = ControlSocket(str(tmp_path / "sock"), poller, pong)
    control.ensure()
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(tmp_path / "sock"))
        peer.sendall(encode_frame({"op": "ping"}))
        with no_descriptor():
            assert turns(poller, 0.5) < 30
            assert control.connections == []
        turns_until(poller, lambda: select.select([peer], [], [], 0)[0])
        [(answer, _)] = FrameParser().feed(peer.recv(1000))
    assert answer == {"type": "pong"}
    control.close()


def test_a_socket_made_anew_meanwhile_is_watched(tmp_path: Path) -> None:
    poller, path = Poller(), tmp_path / "sock"
    control = ControlSocket(str(path), poller, pong)
    control.ensure()
    with socket.socket(socket.AF_UNIX) as early, socket.socket(socket.AF_UNIX) as late:
        early.connect(str(path))
        with no_descriptor():
            poller.turn()
        path.unlink()
        control.ensure()
        late.connect(str(path))
        turns_until(poller, lambda: control.connections)
        turns(poller, 0.3)
        assert len(control.connections) == 1
    control.close()


def test_a_shortage_ends_no_loop(tmp_path: Path) -> None:
    paths = paths_in(tmp_path)
    ours, theirs = socket.socketpair()
    log, looked = open_writer(paths), []
    desk = Desk(log, paths, theirs)

    def short() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def broken() -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    desk.serve(short, lambda: looked.append(True))
    desk.serve(desk.poller.turn, lambda: None)
    assert looked == [True]
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        desk.serve(broken, lambda: None)
    desk.socket.close()
    log.close()
    ours.close()


def test_nobody_is_told_of_an_event_before_it_can_be_read(tmp_path: Path) -> None:
    """As long as the disk is full that can be long, and who is told looks, finds nothing, and asks again."""
    paths = paths_in(tmp_path)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    log = open_writer(paths)
    desk = Desk(log, paths, theirs)
    told = desk.recorder.told_head
    desk.recorder.output("stdout", b"waits for the next flush")
    assert log.head > told
    ours.sendall(encode_frame({"op": "watch", "after": told}))
    desk.poller.turn()
    with pytest.raises(BlockingIOError):
        ours.recv(1000)
    desk.recorder.flush()
    assert LogReader(paths).page(told).events[-1].data == b"waits for the next flush"
    assert FrameParser().feed(ours.recv(1000)) == [({"type": "head", "head": log.head}, b"")]
    ours.sendall(encode_frame({"op": "watch", "after": told}))
    desk.poller.turn()
    assert FrameParser().feed(ours.recv(1000)) == [({"type": "head", "head": log.head}, b"")]
    desk.socket.close()
    desk.recorder.close()
    log.close()
    ours.close()
