"""What a program printed, as styled text: colours are kept, all else that a terminal obeys is only shown.

A pure reading of ECMA-48 as far as it is about looks.  A sequence that would move the
cursor, set a title or ask the terminal a question becomes one visible mark, as does every
character that could make the text read other than it is.  Concealed text is not concealed.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from .palette import nearest

# C0 but tab; DEL; C1; bidirectional controls; invisible joiners and fillers; line separators; tags;
# lone surrogates, which stand for bytes that are not UTF-8.
STRANGE = (
    "\x00-\x08\x0a-\x1f\x7f-\x9f\u00ad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff"
    "\ufff0-\ufffb\ufffe\uffff\ud800-\udfff\U000e0000-\U000e007f"
)
_CSI = r"(?:\x1b\[|\x9b)"
_TOKEN = re.compile(
    rf"(?P<text>[^{STRANGE}]+)"
    r"|(?P<newline>\r?\n)"
    rf"|(?P<sgr>{_CSI}[0-9;:]{{0,256}}m)"
    rf"|(?P<sequence>{_CSI}[0-?]{{0,256}}[ -/]{{0,16}}[@-~]"  # cursor, screen, modes, questions
    r"|\x1b[\]PX^_][^\x07\x1b\n]{0,4096}(?:\x07|\x1b\\)"  # titles, links, clipboard, device strings
    r"|\x1b[ -/]{0,16}[0-Z\\`-~])"
    r"|(?P<strange>[\s\S])"
)
# What may be the beginning of one of these, with its end in the next chunk.
_INCOMPLETE = re.compile(
    rf"(?:{_CSI}[0-?]{{0,256}}[ -/]{{0,16}}|\x1b[\]PX^_][^\x07\x1b\n]{{0,4096}}\x1b?|\x1b[ -/]{{0,16}}|\r)\Z"
)
_LONGEST = 4200
NEWLINE = "newline"


@dataclass(frozen=True, slots=True)
class Look:
    """How text looks.  Colours are numbers of xterm's palette of 256; None: the default."""

    foreground: int | None = None
    background: int | None = None
    bold: bool = False
    dim: bool = False
    italic: bool = False
    underline: bool = False
    reverse: bool = False
    strike: bool = False


PLAIN = Look()


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of one line.  ``mark``: not the program's text, but what stands for something unprintable."""

    text: str
    look: Look = PLAIN
    mark: bool = False


class Painter:
    """Reads one stream chunk by chunk; its look lasts over lines, as on a terminal."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._rest = ""
        self.look = PLAIN

    def feed(self, data: bytes) -> Iterator[Span | str]:
        """Spans, and `NEWLINE` between lines."""
        text = self._rest + self._decoder.decode(data)
        cut = _INCOMPLETE.search(text, max(0, len(text) - _LONGEST))
        end = len(text) if cut is None else cut.start()
        self._rest = text[end:]
        return self._pieces(text[:end])

    def finish(self) -> Iterator[Span | str]:
        """What was held back at the end of the stream."""
        text, self._rest = self._rest + self._decoder.decode(b"", True), ""
        return self._pieces(text)

    def _pieces(self, text: str) -> Iterator[Span | str]:
        for match in _TOKEN.finditer(text):
            kind, found = match.lastgroup, match.group()
            if kind == "text":
                yield Span(found, self.look)
            elif kind == "newline":
                yield NEWLINE
            elif kind == "sgr":
                self.look = look_after(self.look, found)
            else:
                yield Span("ESC" if kind == "sequence" else visible(found), mark=True)


def visible(character: str) -> str:
    """What is shown for a character that cannot be: ``\\r``, ``\\x00``, ``U+202E``; ``\\xff`` for a byte."""
    point = ord(character)
    if 0xDC80 <= point <= 0xDCFF:  # a byte that is not UTF-8 (PEP 383)
        return f"\\x{point - 0xDC00:02x}"
    if character == "\r":
        return "\\r"
    return f"\\x{point:02x}" if point < 0x80 else f"U+{point:04X}"


def look_after(look: Look, sequence: str) -> Look:
    """The look after a "select graphic rendition" sequence (ECMA-48 8.3.117, and xterm's colours)."""
    words = sequence.removeprefix("\x1b[").removeprefix("\x9b")[:-1].split(";")
    index = 0
    while index < len(words):
        code, colon, rest = words[index].partition(":")
        number = _number(code)
        if number in (38, 48):
            arguments = rest.split(":") if colon else words[index + 1 :]
            colour, taken = _extended(arguments)
            index += 0 if colon else taken
            if colour is not None:
                look = _coloured(look, number - 38, colour)
        else:
            look = _step(look, number, underlined=rest != "0")
        index += 1
    return look


def _step(look: Look, number: int, *, underlined: bool) -> Look:
    if number == 0:
        return PLAIN
    if number in _SWITCHES:
        return replace(look, **_SWITCHES[number])
    if number == 4:  # 4:0 ends it, 4:1 to 4:5 are kinds of it
        return replace(look, underline=underlined)
    if number in (39, 49):
        return _coloured(look, number - 39, None)
    for first, layer, base in _COLOURS:
        if first <= number < first + 8:
            return _coloured(look, layer, base + number - first)
    return look


_SWITCHES: dict[int, dict[str, bool]] = {
    1: {"bold": True},
    2: {"dim": True},
    3: {"italic": True},
    7: {"reverse": True},
    9: {"strike": True},
    21: {"underline": True},
    22: {"bold": False, "dim": False},
    23: {"italic": False},
    24: {"underline": False},
    27: {"reverse": False},
    29: {"strike": False},
}
# First code, which layer (0 foreground, 10 background), first colour of the palette.
_COLOURS = ((30, 0, 0), (40, 10, 0), (90, 0, 8), (100, 10, 8))


def _coloured(look: Look, layer: int, colour: int | None) -> Look:
    return replace(look, background=colour) if layer else replace(look, foreground=colour)


def _extended(arguments: list[str]) -> tuple[int | None, int]:
    """``5;n`` or ``2;r;g;b`` (also ``2::r:g:b``): the colour, and how many words it took."""
    kind = _number(arguments[0]) if arguments else -1
    if kind == 5 and len(arguments) >= 2:
        return min(_number(arguments[1]), 255), 2
    if kind == 2 and len(arguments) >= 4:
        channels = arguments[-3:] if len(arguments) >= 5 and arguments[1] == "" else arguments[1:4]
        red, green, blue = (min(_number(word), 255) for word in channels)
        return nearest(red, green, blue), 4
    return None, len(arguments)


def _number(word: str) -> int:
    return int(word[:9]) if word.isdigit() else 0
