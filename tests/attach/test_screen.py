"""What is done to bytes on their way between a terminal and a program.  No terminal here."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_supervisor import SupervisorError
from durable_supervisor.cli.terminal import keys
from durable_supervisor.cli.terminal.keys import DetachKeys
from durable_supervisor.cli.terminal.screen import Modes, Scrollback

QUESTIONS = [
    b"\x05", b"\x1bZ", b"\x1b[c", b"\x1b[0c", b"\x1b[>c", b"\x1b[=c", b"\x1b[5n", b"\x1b[6n", b"\x1b[?6n",
    b"\x1b[?2026$p", b"\x1b[4$p", b"\x1b[>0q", b"\x1b[?u", b"\x1b[x", b"\x1b[14t", b"\x1b[18t",
    b"\x1b]10;?\x07", b"\x1b]11;?\x1b\\", b"\x1b]4;3;?\x07", b"\x1b]52;c;?\x07", b"\x1bP+q544e\x1b\\",
    b"\x1bP$qm\x1b\\",
]  # fmt: skip
HARMLESS = [
    b"plain", b"\x1b[31m", b"\x1b[m", b"\x1b[2J", b"\x1b[10;20H", b"\x1b[?25l", b"\x1b]0;title\x07", b"\r\n",
    b"\xc3\xa9", b"\x1b(B", b"\x1bc", b"\x1b[8;24;80t", b"\x1b[?1049h", b"\x1b7", b"\x1b[5A", b"cn?",
]  # fmt: skip


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({cut % (len(data) + 1) for cut in cuts})
    ends = [*places, len(data)]
    return [data[begin:end] for begin, end in zip([0, *places], ends, strict=True)]


@given(st.lists(st.sampled_from(HARMLESS + QUESTIONS)), st.lists(st.integers(0, 400), max_size=6))
def test_scrollback_asks_nothing_and_loses_nothing_else(parts: list[bytes], cuts: list[int]) -> None:
    scrollback = Scrollback()
    shown = b"".join(scrollback.feed(piece) for piece in split(b"".join(parts), cuts)) + scrollback.finish()
    assert shown == b"".join(part for part in parts if part not in QUESTIONS)


@given(st.binary(max_size=600), st.lists(st.integers(0, 600), max_size=6))
def test_scrollback_of_anything_is_the_same_however_it_is_cut(data: bytes, cuts: list[int]) -> None:
    whole, pieces = Scrollback(), Scrollback()
    expected = whole.feed(data) + whole.finish()
    assert b"".join(map(pieces.feed, split(data, cuts))) + pieces.finish() == expected


@given(st.lists(st.integers(0, 60), max_size=4))
def test_modes_are_switched_back(cuts: list[int]) -> None:
    modes = Modes()
    for piece in split(b"\x1b[?1049h\x1b[?25l\x1b[?1000;1006hx\x1b[?7l\x1b[?2004h\x1b[?7h\x1b[?2004l", cuts):
        modes.feed(piece)
    back = modes.undo()
    assert back.endswith(b"\x1b[m")
    for mode in (b"1049l", b"25h", b"1000l", b"1006l"):
        assert b"\x1b[?" + mode in back
    assert b"2004" not in back
    assert b"?7" not in back


def test_an_untouched_terminal_is_left_alone() -> None:
    assert Modes().undo() == b"\x1b[m"


@pytest.mark.parametrize(
    ("typed", "passed", "leaves"),
    [
        (b"abc", b"abc", False),
        (b"a\x1ddb", b"a", True),
        (b"a\x1d", b"a", False),
        (b"\x1dx", b"\x1dx", False),
        (b"\x1d\x1d", b"\x1d", False),
        (b"\x1d\x1dd", b"\x1dd", False),
        (b"\x1dx\x1dd", b"\x1dx", True),
        (b"d\x1d\r", b"d\x1d\r", False),
    ],
)
def test_the_keys_that_leave(typed: bytes, passed: bytes, leaves: bool) -> None:
    for size in (1, 2, 100):
        found = DetachKeys(keys.parse(keys.DEFAULT))
        seen, left = b"", False
        for begin in range(0, len(typed), size):
            if not left:
                more, left = found.feed(typed[begin : begin + size])
                seen += more
        assert (seen, left) == (passed, leaves)


def test_other_keys() -> None:
    assert keys.parse("ctrl-a,d") == b"\x01d"
    assert keys.parse("ctrl-p,ctrl-q") == b"\x10\x11"
    assert keys.parse("CTRL-\\") == b"\x1c"
    assert DetachKeys(keys.parse("ctrl-q")).feed(b"x\x11") == (b"x", True)
    assert DetachKeys(b"").feed(b"x\x1dd") == (b"x\x1dd", False)
    for wrong in ("", "ctrl-", "ctrl-aa", "meta-x", "ctrl-é", "a,,b", "ctrl-1", ",".join("abcdefghi")):
        with pytest.raises(SupervisorError, match="detach-key"):
            keys.parse(wrong)
