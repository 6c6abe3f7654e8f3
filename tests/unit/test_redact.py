"""The streaming filters against slow, obvious ones."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from durable_supervisor.model.secrets import REDACTED, redact_text, secret_spans
from durable_supervisor.worker import redact
from durable_supervisor.worker.redact import Redactor, Utf8Boundary, incomplete_tail

MARK = REDACTED.encode()

# Few letters, so that secrets overlap, contain and touch each other all the time.
letters = st.sampled_from(b"ab")
secrets = st.lists(st.lists(letters, min_size=1, max_size=5).map(bytes), max_size=4)
streams = st.lists(letters, max_size=40).map(bytes)
cuts = st.lists(st.integers(0, 40), max_size=12)


def naive(data: bytes, values: list[bytes]) -> bytes:
    """Every byte that belongs to an occurrence of a secret is secret; stretches of them become a mark."""
    covered = [False] * len(data)
    for value in values:
        for at in range(len(data)):
            if value and data.startswith(value, at):
                covered[at : at + len(value)] = [True] * len(value)
    result = b""
    for at, secret in enumerate(covered):
        if not secret:
            result += data[at : at + 1]
        elif at == 0 or not covered[at - 1]:
            result += MARK
    return result


def split(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(min(place, len(data)) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


def stream(data: bytes, places: list[int], values: list[bytes]) -> bytes:
    redactor = Redactor(values)
    return b"".join([redactor.feed(piece) for piece in split(data, places)]) + redactor.finish()


@settings(max_examples=500)
@given(streams, cuts, secrets)
@example(b"abab", [2], [b"ab"])  # two that touch, in two pieces
@example(b"aab", [1, 2], [b"aab", b"ab"])
@example(b"xabab", [], [b"ababa", b"bab"])  # the stream ends inside the longer one
@example(b"aaaa", [1, 2, 3], [b"aa"])
def test_any_split_gives_what_the_whole_would(data: bytes, places: list[int], values: list[bytes]) -> None:
    assert stream(data, places, values) == naive(data, values)


@settings(max_examples=500)
@given(streams, cuts, secrets)
@example(b"ab", [1], [b"abb"])
def test_whichever_of_them_count_as_long(data: bytes, places: list[int], values: list[bytes]) -> None:
    """Whether a long one may have begun is found out in another way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redact, "_LONG", 3)
        assert stream(data, places, values) == naive(data, values)


def test_no_line_is_looked_for_in_all_of_long_secrets() -> None:
    """Twenty private keys, say: a line's end is looked for in short ones, and each long one in the line."""
    values = [random.Random(number).randbytes(100_000) for number in range(20)]
    redactor = Redactor([*values, b"a-short-one"])
    assert redactor._insides == b"a-short-one"
    line = b"an ordinary line, with a number at its end: 12345\n"
    assert redactor.feed(line) == line
    assert redactor.feed(line + values[3][:7]) == line
    assert redactor.feed(values[3][7:] + b"\n") == MARK + b"\n"


@settings(max_examples=200)
@given(st.binary(max_size=60), cuts)
def test_without_secrets_nothing_changes(data: bytes, places: list[int]) -> None:
    assert stream(data, places, []) == data
    assert stream(data, places, [b""]) == data


@settings(max_examples=200)
@given(streams, secrets)
def test_texts_are_redacted_like_streams(data: bytes, values: list[bytes]) -> None:
    texts = [value.decode() for value in values]
    assert redact_text(data.decode(), texts).encode() == naive(data, values)


@settings(max_examples=200)
@given(streams, cuts, secrets)
def test_no_more_is_held_back_than_could_be_a_secret(
    data: bytes, places: list[int], values: list[bytes]
) -> None:
    redactor = Redactor(values)
    longest = max(map(len, values), default=0)
    given_bytes = shown = 0
    for piece in split(data, places):
        given_bytes += len(piece)
        shown += len(redactor.feed(piece).replace(MARK, b""))
        hidden = sum(end - start for start, end in secret_spans(data[:given_bytes], values))
        assert given_bytes - shown - hidden < max(longest, 1)


def test_spans_of_secrets_are_merged() -> None:
    assert secret_spans("xabcdx", ["ab", "bc", "cd"]) == [(1, 5)]
    assert secret_spans("ab.ab", ["ab"]) == [(0, 2), (3, 5)]
    assert secret_spans(b"aaa", [b"aa"]) == [(0, 3)]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("secret", ["a" * 8, "a" * 300_001, "ab" * 4, "a" * 4000 + "b" + "a" * 4000])
def test_what_repeats_itself_is_found_at_once(secret: str) -> None:
    """It stands there up to a million times, which takes minutes if it is one after the other."""
    text = secret * (900_000 // len(secret))
    assert secret_spans(text, [secret] * 500) == [(0, len(text))]


def test_a_large_stream_is_not_slow() -> None:
    """Near misses everywhere: still linear."""
    redactor = Redactor([b"a" * 50 + b"b", b"x" * 100_000])
    out = sum(len(redactor.feed(b"a" * 65536)) for _ in range(100)) + len(redactor.finish())
    assert out == 100 * 65536


# Characters.


def boundary(data: bytes, places: list[int]) -> list[bytes]:
    filter_ = Utf8Boundary()
    return [*[filter_.feed(piece) for piece in split(data, places)], filter_.finish()]


@settings(max_examples=300)
@given(st.text(max_size=20), cuts)
def test_every_piece_of_a_text_is_a_text(text: str, places: list[int]) -> None:
    pieces = boundary(text.encode(), places)
    assert "".join(piece.decode() for piece in pieces) == text
    assert pieces[-1] == b""


@settings(max_examples=300)
@given(st.binary(max_size=40), cuts)
def test_bytes_that_are_no_text_pass_unchanged(data: bytes, places: list[int]) -> None:
    assert b"".join(boundary(data, places)) == data


@settings(max_examples=300)
@given(st.binary(max_size=12))
def test_only_a_possible_character_waits(data: bytes) -> None:
    waiting = incomplete_tail(data)
    assert 0 <= waiting <= 3
    if waiting:
        tail = data[-waiting:]
        completed = [tail + b"\x80" * more for more in (1, 2, 3)] + [
            tail + b"\xbf" * more for more in (1, 2, 3)
        ]
        lenient = tail[0] in (0xE0, 0xED, 0xF0, 0xF4)  # their second byte has a narrower range
        assert lenient or any(_is_text(one) for one in completed)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.parametrize(
    ("data", "waiting"),
    [
        (b"", 0), (b"a", 0), ("é".encode(), 0), (b"\xc3", 1), (b"\xe2", 1), (b"\xe2\x82", 2),
        (b"\xf0\x9f\x98", 3),
        ("😀".encode(), 0), (b"\x80", 0), (b"\x80\x80\x80", 0), (b"\xc0", 0), (b"\xc1", 0), (b"\xf5", 0),
        (b"\xff", 0), (b"a\xc3", 1), (b"\xe2\x82a", 0),
    ],
)  # fmt: skip
def test_incomplete_tails(data: bytes, waiting: int) -> None:
    assert incomplete_tail(data) == waiting
