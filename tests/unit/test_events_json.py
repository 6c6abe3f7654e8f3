"""The JSON form of events, as every face prints it."""

from __future__ import annotations

import base64
import json
import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_supervisor.model.events import ALL_KINDS, TERMINAL_KINDS, Event, Kind, iso_time

WALL = 1_767_322_985_000_006_789


def output(data: bytes, stream: str = "stdout") -> Event:
    return Event(7, WALL, 1_500_000_400, Kind.OUTPUT, {"stream": stream, "offset": 12}, data)


def test_output_that_is_text() -> None:
    assert output("héllo\n".encode()).to_dict() == {
        "seq": 7,
        "time": "2026-01-02T03:03:05.000006Z",
        "elapsed": 1.5,
        "kind": "output",
        "stream": "stdout",
        "offset": 12,
        "text": "héllo\n",
    }


def test_output_that_is_not_text_has_its_bytes_beside_it() -> None:
    form = output(b"a\xff\x00b", "stderr").to_dict()
    assert form["text"] == "a�\x00b"
    assert base64.b64decode(str(form["base64"])) == b"a\xff\x00b"
    assert form["stream"] == "stderr"


@given(st.binary(max_size=64))
def test_no_byte_is_lost_in_json(data: bytes) -> None:
    form = json.loads(json.dumps(output(data).to_dict()))
    kept = base64.b64decode(form["base64"]) if "base64" in form else form["text"].encode()
    assert kept == data


LONG = b"x" * 4096
ASCII = bytes(range(128))
LINE = st.sampled_from(
    [LONG, b"y" * 79 + b"\n", b'"quoted"', b"\\", b"\\n", b'\\"', ASCII, b"\x1b[0m", b"\r\n"]
)


def as_json_makes_it(event: Event) -> bytes:
    return json.dumps(event.to_dict(), separators=(",", ":")).encode("ascii")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b'short \\ "\n',
        LONG,
        LONG + ASCII,
        ASCII * 100,
        LONG + "é".encode(),
        LONG + "é".encode()[:1],
        LONG + b"\xff",
        b"\\" + LONG + b"\\",
        b"\\u000a\n" + LONG + b'\\"',
    ],
)
def test_the_fast_way_to_a_line_writes_the_same(data: bytes) -> None:
    assert output(data).to_json() == as_json_makes_it(output(data))


@given(st.lists(LINE, max_size=12).map(b"".join))
def test_whatever_is_to_be_escaped_it_is_the_same_line(data: bytes) -> None:
    assert output(data).to_json() == as_json_makes_it(output(data))


@pytest.mark.parametrize("kind", sorted(ALL_KINDS - {Kind.OUTPUT}))
def test_every_other_kind_carries_its_detail(kind: str) -> None:
    event = Event(1, WALL, 0, kind, {"stream": "stdout", "first_seq": 1})
    assert event.to_dict() == {
        "seq": 1,
        "time": iso_time(WALL),
        "elapsed": 0.0,
        "kind": kind,
        "detail": {"stream": "stdout", "first_seq": 1},
    }
    assert event.to_json() == as_json_makes_it(event)


def test_what_is_no_json_is_none_of_ours() -> None:
    with pytest.raises(ValueError, match="JSON"):
        Event(1, WALL, 0, Kind.RUN_WARNING, {"reason": float("nan")}).to_json()


def test_kinds_follow_one_vocabulary() -> None:
    assert all(re.fullmatch(r"output|(output|program|run|control)\.[a-z_]+", kind) for kind in ALL_KINDS)
    assert TERMINAL_KINDS < ALL_KINDS


def test_stream_and_offset_are_none_where_they_mean_nothing() -> None:
    event = Event(1, WALL, 0, Kind.PROGRAM_RELEASED, {})
    assert (event.stream, event.offset, event.text) == (None, None, "")
    assert (output(b"").stream, output(b"").offset) == ("stdout", 12)


def test_events_compare_by_content() -> None:
    assert output(b"a") == output(b"a")
    assert hash(output(b"a")) == hash(output(b"a"))
    assert output(b"a") != output(b"b")
    assert output(b"a") != "a"
    assert repr(output(b"a")) == "Event(7, output)"


@given(st.integers(min_value=0, max_value=4_000_000_000 * 10**9))
def test_times_are_rfc_3339_in_utc(wall_ns: int) -> None:
    parsed = datetime.fromisoformat(iso_time(wall_ns))
    assert parsed.tzinfo == UTC
    assert parsed == datetime.fromtimestamp(wall_ns // 10**9, UTC).replace(
        microsecond=wall_ns % 10**9 // 1000
    )
