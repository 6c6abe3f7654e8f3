"""Make bytes that a program printed safe to show on a terminal.

A program may print anything: sequences that move the cursor, set the title,
answer as if typed, or reorder text.  What could do so is shown as ``\\x1b``.
"""

from __future__ import annotations

import codecs
import re
from functools import cache

# C0 but tab and newline; DEL; C1 (a lone 0x9b is CSI); bidirectional overrides and isolates
# (Unicode TR 9), which make text read other than it is; line and paragraph separators; lone surrogates.
_UNSAFE = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"


def escape_text(text: str) -> str:
    """One line: control characters, tabs and newlines included, become visible escapes."""
    if text.isascii() and text.isprintable():  # nearly always, and then without what looks closer
        return text
    return _unsafe("\t\n").sub(_visible, text)


class StreamEscaper:
    """Escapes one stream chunk by chunk; a character split over two chunks stays whole.

    Bytes that are not UTF-8 show as ``\\xNN``.  A carriage return directly before
    a newline is dropped (a DOS line end); any other one is shown.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._held_return = False

    def feed(self, data: bytes) -> str:
        """The safe text of this chunk."""
        return self._escape(self._decoder.decode(data))

    def finish(self) -> str:
        """What was held back at the end of the stream; resets for the next one."""
        text = self._escape(self._decoder.decode(b"", True))
        if self._held_return:
            self._held_return = False
            text += "\\r"
        return text

    def _escape(self, text: str) -> str:
        if not text:
            return ""
        if self._held_return:
            self._held_return = False
            text = "\r" + text
        if text.endswith("\r"):
            self._held_return = True
            text = text[:-1]
        return _unsafe().sub(_visible, text.replace("\r\n", "\n"))


@cache
def _unsafe(besides: str = "") -> re.Pattern[str]:
    """Compiled at the first need, which takes as long as a twelfth of a bare interpreter."""
    return re.compile(f"[{_UNSAFE}{besides}]")


def _visible(match: re.Match[str]) -> str:
    character = match.group()
    named = {"\r": "\\r", "\t": "\\t", "\n": "\\n"}.get(character)
    if named is not None:
        return named
    point = ord(character)
    return f"\\x{point:02x}" if point < 0x100 else f"\\u{point:04x}"
