"""Long work, told to a person at a terminal."""

from __future__ import annotations

import time

from durable_supervisor.model.progress import Tell, quiet

from ..output import out

_TELL_EVERY = 2.0  # seconds


def progress() -> Tell:
    """Call it with what is being done, how much of it is done, and of how much: a line now and then."""
    if not out.is_terminal(out.STDERR):
        return quiet
    told = time.monotonic()

    def tell(step: str, done: int, of: int) -> None:
        nonlocal told
        if time.monotonic() - told > _TELL_EVERY:
            told = time.monotonic()
            out.note(f"{step}: {done} of {of}...")

    return tell
