"""Frames: whole ones out of any pieces, one at a time without taking from the next, bad ones refused."""

from __future__ import annotations

import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_supervisor.process.channel import FrameError, FrameParser, encode_frame, read_frame

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


def test_a_large_frame_is_read_whole() -> None:
    ours, theirs = socket.socketpair()
    blob = bytes(range(256)) * 20_000
    with ours, theirs:
        sender = threading.Thread(target=theirs.sendall, args=(encode_frame({"a": 1}, blob) + b"rest",))
        sender.start()
        assert read_frame(ours) == ({"a": 1}, blob)
        sender.join()
        assert ours.recv(10) == b"rest"


def test_undecodable_arguments_survive_the_way() -> None:
    assert FrameParser().feed(encode_frame({"argv": ["\udcff"]})) == [({"argv": ["\udcff"]}, b"")]


@pytest.mark.parametrize("frame", [b"\2\0\0\0\0\0\0\0[]", b"\1\0\0\0\0\0\0\0{", b"\xff\xff\xff\xff\0\0\0\0"])
def test_what_is_no_frame_is_refused(frame: bytes) -> None:
    with pytest.raises(FrameError):
        FrameParser().feed(frame)
