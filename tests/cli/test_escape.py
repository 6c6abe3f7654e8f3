"""Nothing a program prints may act on a terminal."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_supervisor.cli.output.escape import StreamEscaper, escape_text


def escaped(*chunks: bytes) -> str:
    escaper = StreamEscaper()
    return "".join([*map(escaper.feed, chunks), escaper.finish()])


def harmless(character: str) -> bool:
    return character in "\n\t" or (
        unicodedata.category(character) not in ("Cc", "Cs", "Zl", "Zp")
        and unicodedata.bidirectional(character)
        not in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    )


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_no_control_character_survives(chunks: list[bytes]) -> None:
    assert all(harmless(character) for character in escaped(*chunks))


@given(st.text(), st.data())
def test_where_the_chunks_are_cut_changes_nothing(text: str, data: st.DataObject) -> None:
    raw = text.encode("utf-8", "surrogatepass")
    cut = data.draw(st.integers(0, len(raw)))
    assert escaped(raw[:cut], raw[cut:]) == escaped(raw)


@given(st.text(alphabet=st.characters(categories=["L", "N", "P", "S"])))
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert escaped(text.encode()) == text
    assert escape_text(text) == text


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        (b"\xc2\x9b31m", "\\x9b31m"),
        (b"\x9b31m", "\\x9b31m"),
        (b"one\r\ntwo\r\n", "one\ntwo\n"),
        (b"50%\r100%", "50%\\r100%"),
        (b"end\r", "end\\r"),
        (b"\xff\xfe", "\\xff\\xfe"),
        (b"\xe2\x82", "\\xe2\\x82"),
        ("a\u202eb".encode(), "a\\u202eb"),
        (b"\ttab\n", "\ttab\n"),
        (b"\x00\x7f", "\\x00\\x7f"),
    ],
)
def test_examples(raw: bytes, shown: str) -> None:
    assert escaped(raw) == shown


def test_one_line_stays_one_line() -> None:
    assert escape_text("a\nb\tc\rd\x1b") == "a\\nb\\tc\\rd\\x1b"
