"""What a terminal of any width gets: nothing is left out without a mark."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from rich.cells import cell_len

from durable_supervisor.cli.output import out
from durable_supervisor.cli.rendering.listing import runs_table
from durable_supervisor.cli.rendering.tables import columns

Shown = Callable[[int, Callable[[], str]], list[str]]
FORM = {
    "run_id": "4f7k" * 4,
    "request_id": "nightly-report-of-the-infrastructure",
    "argv": ["make", "-C", "/repo", "check" * 9],
    "state": "finished",
    "outcome": {"kind": "stdout_limit_exceeded", "code": 143, "signal": None},
    "receipt": {"duration": 12.0},
}


@pytest.fixture
def shown_at(monkeypatch: pytest.MonkeyPatch) -> Shown:
    """The lines of something on a terminal that is so wide."""

    def lines(width: int, show: Callable[[], str]) -> list[str]:
        monkeypatch.setattr(out, "is_terminal", lambda descriptor: True)
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setenv("NO_COLOR", "1")
        shown = show().splitlines()
        assert all(cell_len(line) <= width for line in shown)
        return shown

    return lines


def test_a_table_folds_the_state_and_cuts_the_command(shown_at: Shown) -> None:
    header, first, *more = shown_at(80, lambda: runs_table([FORM | {"request_id": "req-" + "0" * 16}]))
    assert header.split() == ["RUN", "STATE", "STARTED", "TOOK", "REQUEST", "COMMAND"]
    assert "stdout_limit_exceeded" in first
    assert "make -C /repo" in first
    assert [row.strip() for row in more] == ["(exit 143)"]


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_terminal_too_narrow_for_a_table_leaves_nothing_out(width: int, shown_at: Shown) -> None:
    text = " ".join(shown_at(width, lambda: runs_table([FORM])))
    for words in ("4f7k" * 4, "stdout_limit_exceeded", "(exit 143)", "took 12s", "make -C /repo"):
        assert words in text
    assert "nightly-report-of-the-infrastructure" in text.replace(" ", "")


STRANGE = {
    "of two columns": "\u4e16\u754c" * 30,
    "combining": "e\u0301" * 60,
    "joined": "\U0001f469\u200d\U0001f467" * 20,
    "right to left": "\u05e9\u05dc\u05d5\u05dd " * 12,
    "turning the line around": "\u202eexe.\u2066",
    "of no width": "\u200b\ufeff" * 60,
    "controls": "\x1b]0;title\x07\x9b2J\x00\r\n\t\x7f\ud800",
    "nothing": "",
}


@pytest.mark.parametrize("argument", STRANGE.values(), ids=STRANGE)
@pytest.mark.parametrize("width", [*range(3, 24), 40, 60, 80, 120, 200])
def test_no_argument_breaks_the_lines(argument: str, width: int, shown_at: Shown) -> None:
    """At any width; and what would act on the terminal is shown."""
    text = "".join(shown_at(width, lambda: runs_table([FORM | {"argv": [argument, argument]}, FORM])))
    assert not re.search("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", text)
    assert text.replace(" ", "").count("4f7k" * 4) == 2


def test_a_wide_terminal_shows_a_row_whole(shown_at: Shown) -> None:
    _, row = shown_at(200, lambda: runs_table([FORM]))
    assert "nightly-report-of-the-infrastructure" in row
    assert row.endswith("check" * 9)


def test_a_table_for_which_there_is_no_room_becomes_blocks(shown_at: Shown) -> None:
    header = ["RUN", "SIZE", "REQUEST"]
    rows = [["4f7k" * 4, "4.0 KiB", "nightly-report"], ["5g8m" * 4, "12 B", "-"]]
    assert shown_at(60, lambda: columns(header, rows))[0].split() == header
    assert shown_at(40, lambda: columns(header, rows)) == [
        "run      4f7k4f7k4f7k4f7k",
        "size     4.0 KiB",
        "request  nightly-report",
        "",
        "run   5g8m5g8m5g8m5g8m",
        "size  12 B",
    ]
