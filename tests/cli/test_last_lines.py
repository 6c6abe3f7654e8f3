"""``logs --tail N`` is tail(1) over the recorded output."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from durable_supervisor.cli.reading.last_lines import LastLines
from durable_supervisor.model.events import Event, Kind


@given(
    st.lists(st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\n\n"]), max_size=5).map(b"".join), max_size=8),
    st.integers(0, 6),
)
def test_the_same_bytes_as_tail(chunks: list[bytes], count: int) -> None:
    kept = LastLines(count)
    for seq, data in enumerate(chunks, start=1):
        kept.add(Event(seq, 0, 0, Kind.OUTPUT, {"stream": "stdout", "offset": 0}, data))
    whole = b"".join(chunks)
    wanted = b"".join(whole.splitlines(keepends=True)[-count:]) if count else b""
    assert b"".join(event.data for event in kept.events()) == wanted


def test_memory_is_bounded_by_the_lines_asked_for() -> None:
    kept = LastLines(2)
    for seq in range(1, 1000):
        kept.add(Event(seq, 0, 0, Kind.OUTPUT, {"stream": "stdout", "offset": seq}, b"line\n"))
    assert len(kept._events) <= 3


def test_the_offset_follows_the_cut() -> None:
    kept = LastLines(1)
    kept.add(Event(1, 0, 0, Kind.OUTPUT, {"stream": "stdout", "offset": 10}, b"one\ntwo\n"))
    assert [event.to_dict()["offset"] for event in kept.events()] == [14]
