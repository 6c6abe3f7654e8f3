"""Frames: whole ones out of any pieces, one at a time without taking from the next, bad ones refused."""

from __future__ import annotations

import errno
import os
import resource
import socket
import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_supervisor.process.channel import (
    FrameError,
    FrameParser,
    encode_frame,
    read_frame,
    read_frame_with_fd,
)
from durable_supervisor.process.rights import send_fds

MESSAGES = st.lists(
    st.tuples(
        st.dictionaries(st.text(max_size=5), st.one_of(st.integers(), st.text(max_size=9)), max_size=3),
        st.binary(max_size=300),
    ),
    min_size=1,
    max_size=4,
)


@given(MESSAGES, st.integers(1, 40))
def test_any_pieces_make_the_same_frames(messages: list[tuple[dict[str, object], bytes]], size: int) -> None:
    stream = b"".join(encode_frame(message, blob) for message, blob in messages)
    parser = FrameParser()
    frames = []
    for at in range(0, len(stream), size):
        frames += parser.feed(stream[at : at + size])
    assert frames == messages


@given(MESSAGES)
def test_one_frame_is_read_and_not_a_byte_more(messages: list[tuple[dict[str, object], bytes]]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"".join(encode_frame(message, blob) for message, blob in messages))
        assert [read_frame(ours) for _ in messages] == messages
        theirs.close()
        assert read_frame(ours) is None


@given(MESSAGES, st.data())
def test_a_descriptor_comes_with_its_own_frame(
    messages: list[tuple[dict[str, object], bytes]], data: st.DataObject
) -> None:
    ours, theirs = socket.socketpair()
    sent, seen = [], []
    with ours, theirs:
        for message, blob in messages:
            frame = encode_frame(message, blob)
            with_one = data.draw(st.booleans())
            if with_one:
                assert send_fds(theirs, frame, [theirs.fileno()]) == len(frame)
            else:
                theirs.sendall(frame)
            sent.append((message, blob, with_one))
        theirs.close()
        while (frame_with_fd := read_frame_with_fd(ours)) is not None:
            message, blob, fd = frame_with_fd
            seen.append((message, blob, fd >= 0))
            if fd >= 0:
                socket.close(fd)
            if len(seen) == len(sent):
                break
    assert seen == sent


def test_a_large_frame_comes_with_its_descriptor() -> None:
    ours, theirs = socket.socketpair()
    frame = encode_frame({"a": 1}, bytes(range(256)) * 20_000)
    with ours, theirs:
        theirs.settimeout(0)
        sent = send_fds(theirs, frame, [0])
        assert 0 < sent < len(frame)
        theirs.settimeout(None)
        sender = threading.Thread(target=theirs.sendall, args=(frame[sent:],))
        sender.start()
        message, blob, fd = read_frame_with_fd(ours) or ({}, b"", -1)
        sender.join()
        assert (message, blob) == ({"a": 1}, bytes(range(256)) * 20_000)
        assert fd >= 0
        socket.close(fd)


def test_a_descriptor_for_which_no_number_is_left_is_no_frame_without_one() -> None:
    ours, theirs = socket.socketpair()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ours, theirs:
        send_fds(theirs, encode_frame({"a": 1}), [0])
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (ours.fileno(), hard))
            with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
                read_frame_with_fd(ours)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_large_frame_is_read_whole() -> None:
    ours, theirs = socket.socketpair()
    blob = bytes(range(256)) * 20_000
    with ours, theirs:
        sender = threading.Thread(target=theirs.sendall, args=(encode_frame({"a": 1}, blob) + b"rest",))
        sender.start()
        assert read_frame(ours) == ({"a": 1}, blob)
        sender.join()
        assert ours.recv(10) == b"rest"


@pytest.mark.parametrize("length", [1, 7, 8, 9, 20, 90])
def test_a_frame_that_is_cut_is_none(length: int) -> None:
    ours, theirs = socket.socketpair()
    frame = encode_frame({"run_id": "x" * 50}, b"blob")
    with ours, theirs:
        theirs.sendall(frame[: min(length, len(frame) - 1)])
        theirs.close()
        assert read_frame(ours) is None


def test_a_frame_that_is_too_large_is_not_waited_for() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"\xff" * 8)
        with pytest.raises(FrameError, match="too large"):
            read_frame(ours)


def test_undecodable_arguments_survive_the_way() -> None:
    assert FrameParser().feed(encode_frame({"argv": ["\udcff"]})) == [({"argv": ["\udcff"]}, b"")]


@pytest.mark.parametrize("frame", [b"\2\0\0\0\0\0\0\0[]", b"\1\0\0\0\0\0\0\0{", b"\xff\xff\xff\xff\0\0\0\0"])
def test_what_is_no_frame_is_refused(frame: bytes) -> None:
    with pytest.raises(FrameError):
        FrameParser().feed(frame)


def test_to_send_descriptors_to_nobody_is_an_error_and_no_signal() -> None:
    """Also where the host has let SIGPIPE end it again."""
    script = (
        "import os, signal, socket\n"
        "from durable_supervisor.process.rights import send_fds\n"
        "signal.signal(signal.SIGPIPE, signal.SIG_DFL)\n"
        "ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "send_fds(ours, b'some', [0])\n"
        "message, (fd,), _, _ = socket.recv_fds(theirs, 9, 1)\n"
        "assert (message, os.fstat(fd)) == (b'some', os.fstat(0))\n"
        "theirs.close()\n"
        "try:\n"
        "    send_fds(ours, b'some', [0])\n"
        "except BrokenPipeError:\n"
        "    raise SystemExit(7)\n"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 7
