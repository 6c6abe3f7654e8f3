"""Server-sent events, cut anywhere."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_supervisor.client.sse import Message, Parser

LINES = st.sampled_from(
    ["data: one", "data:two", "data", "data:  kept", "id: 7", "id: 8\0", "id", "event: output", "event",
     ": comment", ":", "retry: 5", "unknown: x", "data: é €", "", "", ""]
)  # fmt: skip
ENDS = st.sampled_from(["\n", "\r\n", "\r"])
STREAMS = st.lists(st.tuples(LINES, ENDS), max_size=30).map(
    lambda lines: "".join(line + end for line, end in lines).encode()
)


def pieces_of(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[begin:end] for begin, end in itertools.pairwise(edges)]


def parse(*pieces: bytes) -> list[Message]:
    parser = Parser()
    return [message for piece in pieces for message in parser.feed(piece)]


def by_the_standard(data: bytes) -> list[Message]:
    """WHATWG HTML 9.2.6, written down as it stands there, over the whole text at once."""
    text = data.decode("utf-8", "replace").removeprefix("\ufeff")
    lines = re.split("\r\n|\n|\r", text)[:-1]
    found, values, kind, last_id = [], "", "", ""
    for line in lines:
        if line == "":
            if values:
                found.append(Message(kind or "message", values.removesuffix("\n"), last_id))
            values, kind = "", ""
        elif not line.startswith(":"):
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "event":
                kind = value
            elif name == "data":
                values += value + "\n"
            elif name == "id" and "\0" not in value:
                last_id = value
    return found


@given(STREAMS, st.lists(st.integers(0, 10_000), max_size=20))
def test_any_pieces_give_the_same_as_the_whole(data: bytes, cuts: list[int]) -> None:
    assert parse(*pieces_of(data, cuts)) == parse(data) == by_the_standard(data)


@given(STREAMS)
def test_byte_by_byte(data: bytes) -> None:
    assert parse(*(data[at : at + 1] for at in range(len(data)))) == parse(data)


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=10))
def test_anything_is_survived(data: bytes, cuts: list[int]) -> None:
    assert parse(*pieces_of(data, cuts)) == parse(data)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\xef\xbb\xbfdata: x\n\n", [Message("message", "x", "")]),
        (b"id: 1\nevent: output\ndata: x\n\n", [Message("output", "x", "1")]),
        (b"data: a\ndata: b\n\n", [Message("message", "a\nb", "")]),
        (b"id: 4\n\ndata: x\n\n", [Message("message", "x", "4")]),
        (b": heartbeat\n\n", []),
        (b"event: end\n\ndata: x\n\n", [Message("message", "x", "")]),
        (b"data: not complete", []),
        (b"data: x\n", []),
        (b"data: \xff\n\n", [Message("message", "\ufffd", "")]),
    ],
)
def test_what_the_standard_says(data: bytes, expected: list[Message]) -> None:
    assert parse(data) == expected


@pytest.mark.timeout(60)
def test_a_line_of_many_pieces_is_joined_once() -> None:
    """Each event of a flood of bytes that JSON escapes has a megabyte in one line.  Joined with each piece it
    would be half a terabyte to copy.
    """
    line = b"data: " + b"x" * (64 << 20)
    pieces = [line[at : at + 4096] for at in range(0, len(line), 4096)]
    assert parse(*pieces, b"\n\n") == [Message("message", "x" * (64 << 20), "")]
