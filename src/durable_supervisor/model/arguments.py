"""What callers give the reading verbs and controls, checked: each refusal names its argument."""

from __future__ import annotations

import os
import signal as signals
from collections.abc import Collection, Iterable

from .errors import invalid
from .states import RunState
from .winsize import MAX_SIDE, is_side

BytesLike = bytes | bytearray | memoryview

MAX_PAGE = 10_000
MAX_NOTE = 4096  # characters
_MAX_POSITION = (1 << 63) - 1  # SQLite's integers


def position(name: str, value: object) -> int:
    """A cursor: 0 or more."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_POSITION:
        raise invalid(name, "must be a whole number of 0 or more", "begin with 0")
    return value


def page_limit(value: object) -> int:
    """How many entries a page may have."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_PAGE:
        raise invalid("limit", f"must be between 1 and {MAX_PAGE}", "ask for smaller pages and go on")
    return value


def kinds_of(value: Collection[str] | None) -> frozenset[str] | None:
    """Names of event kinds; None for all."""
    return None if value is None else frozenset(_words("kinds", value))


def states_of(value: Collection[RunState] | None) -> frozenset[RunState] | None:
    """Run states, also by their words; None for all."""
    if value is None:
        return None
    try:
        return frozenset(RunState(word) for word in _words("states", value))
    except ValueError:
        raise invalid("states", f"must be out of {', '.join(RunState)}") from None


def label_of(value: tuple[str, str] | None) -> tuple[str, str] | None:
    """A label's name and value; None for any."""
    if value is None:
        return None
    if not isinstance(value, tuple) or len(value) != 2 or not all(isinstance(text, str) for text in value):
        raise invalid("label", "must be a pair of name and value", "label=('team', 'infra')")
    return value


def signal_number(value: object) -> int:
    """A signal that can be sent on this system, by its number or its name (``TERM``, ``SIGTERM``)."""
    if isinstance(value, str):
        name = value if value.startswith("SIG") else f"SIG{value}"
        value = signals.Signals.__members__.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value not in signals.valid_signals():
        raise invalid("signal", "is not a signal of this system")
    return int(value)


def terminal_size(name: str, value: object) -> int:
    """Columns or rows of a terminal."""
    if not isinstance(value, int) or not is_side(value):
        raise invalid(name, f"must be a whole number from 1 to {MAX_SIDE}")
    return value


def note_of(value: object) -> str:
    """What an operator has to say, for the journal and the run's log."""
    if not isinstance(value, str) or len(value) > MAX_NOTE or "\0" in value:
        raise invalid("note", f"must be text of at most {MAX_NOTE} characters without NUL")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise invalid("note", "has a lone surrogate, which is no text") from None
    return value


def stdin_bytes(value: object, field: str = "data") -> bytes:
    """What is to be written; ``field`` is what the caller knows it by."""
    if not isinstance(value, BytesLike):
        raise invalid(field, "must be bytes", "encode the text first")
    return bytes(value)


def _words(name: str, value: object) -> Iterable[str]:
    words = list(value) if isinstance(value, Iterable) and not isinstance(value, str | bytes) else None
    if words is None or not all(isinstance(word, str) for word in words):
        raise invalid(name, "must be a collection of names, not one")
    return words


def absolute(field: str, path: str | os.PathLike[str]) -> str:
    """An absolute path, without a look at what is there.  Raises ``INVALID_REQUEST``."""
    try:
        found = os.path.abspath(os.fsdecode(path))
    except (TypeError, ValueError):
        raise invalid(field, "must be a path") from None
    if "\0" in found:
        raise invalid(field, "has a NUL in it")
    return found
