"""What a program's raw output does to a terminal, as far as a viewer must care.

Only the sequences of ECMA-48 and xterm's ctlseqs that outlive the program's own
use of the screen, or that make a terminal answer as if something had been typed.
"""

from __future__ import annotations

import re

# The beginning of a control sequence (CSI, OSC, DCS) whose end is still to come.
_INCOMPLETE = re.compile(rb"\x1b(?:\[[0-?]{0,64}[ -/]{0,2}|[\]P][^\x07\x1b]{0,256}\x1b?)?\Z")
_LONGEST = 512  # bytes of a sequence that is waited for
_PRIVATE_MODE = re.compile(rb"\x1b\[\?([0-9;]{1,64})([hl])")
_QUERY = re.compile(
    rb"\x05|\x1bZ"  # ENQ, DECID
    rb"|\x1b\[[?>=]?[0-9;]*[cn]"  # device attributes, device status, cursor position
    rb"|\x1b\[\??[0-9;]*\$p|\x1b\[>[0-9]*q|\x1b\[\?u|\x1b\[[01]?x"  # modes, version, keyboard, parameters
    rb"|\x1b\[(?:1[1345689]|2[01])(?:;[0-9]+)*t"  # window reports
    rb"|\x1b\][0-9;]*(?:;[a-z]*)?;\?(?:\x07|\x1b\\)"  # colours, clipboard
    rb"|\x1bP[$+]q[^\x07\x1b]*(?:\x07|\x1b\\)"  # settings, capabilities
)
_ON_BY_DEFAULT = frozenset({b"7", b"25"})  # wrapping, and a visible cursor


class Modes:
    """Keeps account of the private modes that were switched, to switch them back when leaving."""

    def __init__(self) -> None:
        self._switched: dict[bytes, bool] = {}
        self._rest = b""

    def feed(self, data: bytes) -> None:
        text, self._rest = _whole(self._rest + data)
        for match in _PRIVATE_MODE.finditer(text):
            for mode in match[1].split(b";"):
                self._switched[mode] = match[2] == b"h"

    def undo(self) -> bytes:
        """Back to a shell's terminal: mouse, bracketed paste, other screen off; cursor on; plain text."""
        back = [
            b"\x1b[?%b%c" % (mode, b"l" if on else b"h")
            for mode, on in self._switched.items()
            if on != (mode in _ON_BY_DEFAULT)
        ]
        return b"".join([*back, b"\x1b[m"])


class Scrollback:
    """Output of the past, without its questions: a terminal would answer them now, into the input."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        text, self._rest = _whole(self._rest + data)
        return _QUERY.sub(b"", text)

    def finish(self) -> bytes:
        """The beginning of a sequence whose end comes live."""
        rest, self._rest = self._rest, b""
        return rest


def _whole(data: bytes) -> tuple[bytes, bytes]:
    """Up to a sequence that is not complete yet, and the rest."""
    found = _INCOMPLETE.search(data, max(0, len(data) - _LONGEST))
    return (data, b"") if found is None else (data[: found.start()], data[found.start() :])
