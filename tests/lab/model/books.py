"""The programs of the model check, and what each of them writes down of itself, outside the product.

A program notes what it is about to do before it does it, so its book says no less than what can
be seen of it: every line that it printed, every signal that it got, the code that it left with.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_PRELUDE = """
book=$1
note() { echo "$*" >> "$book"; }
say() { note out "$1"; echo "$1"; }
warn() { note err "$1"; echo "$1" >&2; }
finish() { note end "$1"; exit "$1"; }
note begin $$
"""
_TICK = 'n=0; while [ $n -lt %d ]; do n=$((n+1)); say "line $n"; sleep 0.2; done\n'
_TRAPS = "trap 'note signal TERM; finish 17' TERM\ntrap 'note signal USR1' USR1\n"
MOST_KEPT = 65536  # bytes of a flood's stdout; the middle of it is dropped
_FLOOD = 20_000  # lines

# Kind of program -> its script.
SCRIPTS: dict[str, str] = {
    "quick": "say one; warn two; say three; finish 3",
    "ticking": _TRAPS + _TICK % 6 + "finish 4",
    "stubborn": "trap '' TERM HUP INT\n" + _TICK % 5 + "finish 5",
    "reading": _TRAPS + 'while read -r line; do note got "$line"; say "heard $line"; done; finish 6',
    "leaving": "(setsid sleep 31 &); sleep 32 & say left; finish 8",
    "flooding": f"note flood {_FLOOD}; seq 1 {_FLOOD} || note cut; finish 9",
    "terminal": _TRAPS + "trap 'note signal WINCH' WINCH\n" + _TICK % 4 + "finish 10",
    "missing": "",
    "late": _TRAPS + _TICK % 10 + "finish 12",
    "scoped": _TRAPS + _TICK % 6 + "finish 13",
    "confined": "say one; warn two; finish 14",
}
# How much more there is of a kind than of the others.
WEIGHTS = {"quick": 6, "ticking": 8, "reading": 4, "confined": 0.6, "missing": 1, "scoped": 2}
READERS = ("reading", "terminal")


@dataclass
class Book:
    """What the executions of one request wrote, in order."""

    begun: list[int] = field(default_factory=list)  # pids: one for each execution
    streams: dict[str, list[bytes]] = field(default_factory=lambda: {"stdout": [], "stderr": []})
    got: list[str] = field(default_factory=list)
    signals: list[str] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    cut: bool = False  # a child of the program's was killed before it had printed all of its flood

    def expected(self, stream: str) -> bytes:
        """All that it may have printed; it may have been killed before the last line was."""
        return b"".join(self.streams[stream])


class Books:
    """A folder with a book for each request."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)

    def request(self, request_id: str, kind: str) -> dict[str, Any]:
        """The start request that runs a program of this kind: what `actors` make a command of."""
        book = str(self._folder / request_id)
        argv = ["sh", "-c", _PRELUDE + SCRIPTS[kind], "sh", book]
        if kind == "missing":
            argv[0] = "/nonexistent/program"
        form: dict[str, Any] = {"argv": argv, "request_id": request_id, "limits": {"grace": 0.3}}
        if kind in READERS:
            form["stdin"] = "open"
            form["limits"]["timeout"] = 3.0
        if kind == "terminal":
            form["pty"] = [80, 24]
        if kind == "flooding":
            form["limits"]["max_stdout_bytes"] = MOST_KEPT
        if kind == "late":
            form["limits"]["timeout"] = 0.5
        if kind == "scoped":
            form["lifetime"] = "scope"
        if kind == "confined":
            form["network"] = "none"
        return form

    def executed(self) -> set[str]:
        """The request ids of which any program began."""
        return set(os.listdir(self._folder))

    def read(self, request_id: str) -> Book:
        book = Book()
        try:
            lines = (self._folder / request_id).read_text().splitlines()
        except FileNotFoundError:
            return book
        for word, _, rest in (line.partition(" ") for line in lines):
            _enter(book, word, rest)
        return book


def _enter(book: Book, word: str, rest: str) -> None:
    if word == "begin":
        book.begun.append(int(rest))
    elif word in ("out", "err"):
        book.streams["stdout" if word == "out" else "stderr"].append(rest.encode() + b"\n")
    elif word == "flood":
        book.streams["stdout"] += [b"%d\n" % number for number in range(1, int(rest) + 1)]
    elif word == "cut":
        book.cut = True
    elif word == "got":
        book.got.append(rest)
    elif word == "signal":
        book.signals.append(rest)
    elif word == "end":
        book.ended.append(int(rest))
    else:
        raise AssertionError(f"a strange line in a book: {word} {rest}")
