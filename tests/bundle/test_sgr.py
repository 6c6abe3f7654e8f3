"""Program output into styled text: nothing is lost, nothing gets through, however it is cut."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_supervisor.bundle.report import markup
from durable_supervisor.bundle.report.palette import nearest, rgb
from durable_supervisor.bundle.report.sgr import NEWLINE, PLAIN, STRANGE, Look, Painter, Span, look_after

FRAGMENTS = [
    b"plain", b"\n", b"\r\n", b"\r", b"\t", b"\x00", b"\xff\xfe", b"\xe2\x80\xae", "é✓🦀".encode(),
    b"</script><!--", b'"\'&<>', b"\x1b", b"\x1b[", b"\x1bP", b"\x9b", b"\xc2\x9b31m",
    b"\x1b[31m", b"\x1b[0m", b"\x1b[1;38;5;200m", b"\x1b[48;2;1;2;3m", b"\x1b[999999999999m",
    b"\x1b[2J", b"\x1b]0;title\x07", b"\x1b]8;;http://x\x1b\\",
]  # fmt: skip
HOSTILE = st.lists(st.sampled_from(FRAGMENTS) | st.binary(max_size=12), max_size=24).map(b"".join)


def pieces(*chunks: bytes) -> list[Span | str]:
    painter = Painter()
    found = [piece for chunk in chunks for piece in painter.feed(chunk)]
    return [*found, *painter.finish()]


def html(found: list[Span | str]) -> str:
    return "".join(markup.span(piece) if isinstance(piece, Span) else "\n" for piece in found)


def words(found: list[Span | str]) -> str:
    return "".join(piece.text if isinstance(piece, Span) else "\n" for piece in found)


def looks(found: list[Span | str]) -> list[tuple[str, Look, bool] | str]:
    """Character by character, so that it does not matter how text is cut into spans."""
    return [
        one
        for piece in found
        for one in (
            [(character, piece.look, piece.mark) for character in piece.text]
            if isinstance(piece, Span)
            else [NEWLINE]
        )
    ]


@given(HOSTILE)
def test_no_markup_gets_through(data: bytes) -> None:
    made = html(pieces(data))
    bare = re.sub(r'<span class="[a-z0-9 ]+">|</span>|<i>|</i>|&(?:amp|lt|gt|quot|#39);', "", made)
    assert not set(bare) & set("<>&\"'")
    assert not re.search(f"[{STRANGE}]", made.replace("\n", ""))


@given(HOSTILE, st.data())
def test_it_does_not_matter_how_output_is_cut(data: bytes, draw: st.DataObject) -> None:
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=6)))
    chunks = [data[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    assert looks(pieces(*chunks)) == looks(pieces(data))


@given(st.text(st.characters(exclude_categories=["Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"]), max_size=80))
def test_plain_text_stays_as_it_is(text: str) -> None:
    shown = re.sub(f"[{STRANGE}]", "", text)
    assert words(pieces(shown.encode())) == shown


@given(st.text(max_size=40))
def test_a_sequence_never_swallows_a_line(text: str) -> None:
    found = words(pieces(b"\x1b]0;" + text.encode("utf-8", "replace") + b"\nnext"))
    assert found.endswith("\nnext")


@pytest.mark.parametrize(
    ("sequence", "look"),
    [
        ("\x1b[31m", Look(foreground=1)),
        ("\x1b[97;104m", Look(foreground=15, background=12)),
        ("\x1b[1;3;4;9m", Look(bold=True, italic=True, underline=True, strike=True)),
        ("\x1b[38;5;200m", Look(foreground=200)),
        ("\x1b[38:5:200m", Look(foreground=200)),
        ("\x1b[48;2;255;0;0m", Look(background=196)),
        ("\x1b[48:2::255:0:0m", Look(background=196)),
        ("\x1b[38;5;1;1m", Look(foreground=1, bold=True)),
        ("\x1b[4:0m", PLAIN),
        ("\x1b[8m", PLAIN),  # concealed text is shown
        ("\x1b[38m", PLAIN),
        ("\x1b[38;5m", PLAIN),
        ("\x1b[38;2;1m", PLAIN),
        ("\x1b[m", PLAIN),
        ("\x9b32m", Look(foreground=2)),
        ("\x1b[99999999999999999999m", PLAIN),
    ],
)
def test_looks(sequence: str, look: Look) -> None:
    assert look_after(PLAIN, sequence) == look


def test_a_look_lasts_until_it_is_taken_back() -> None:
    found = pieces(b"\x1b[1;31mred\nstill\x1b[39m bold\x1b[22m plain")
    red = Look(foreground=1, bold=True)
    assert found == [
        Span("red", red), NEWLINE, Span("still", red), Span(" bold", Look(bold=True)), Span(" plain"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"a\x00b\x7f", "a\\x00b\\x7f"),
        (b"\xff\xfe", "\\xff\\xfe"),
        ("\u202eabc".encode(), "U+202Eabc"),
        (b"\x1b[2J\x1b[Hx", "ESCESCx"),
        (b"\x1b]52;c;aGk=\x07x", "ESCx"),
        (b"50%\r100%\r\n", "50%\\r100%\n"),
        (b"tab\there", "tab\there"),
        (b"\x1b]unended", "\\x1b]unended"),
        (b"\x1b", "\\x1b"),
        (b"half \xe2\x9c", "half \\xe2\\x9c"),
        ("\U000e0041\ufeff".encode(), "U+E0041U+FEFF"),
    ],
)
def test_what_cannot_be_shown_is_named(data: bytes, shown: str) -> None:
    assert words(pieces(data)) == shown


def test_reversed_looks_swap_the_colours() -> None:
    assert markup.classes(Look(reverse=True)) == ["fd", "bd"]
    assert markup.classes(Look(foreground=1, background=4, reverse=True)) == ["f4", "b1"]


@given(st.integers(16, 255))
def test_a_colour_of_the_palette_is_nearest_to_itself(number: int) -> None:
    assert rgb(nearest(*rgb(number))) == rgb(number)
