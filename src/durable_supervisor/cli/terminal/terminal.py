"""The terminal that a person sits at: raw while attached, given back as it was in every case."""

from __future__ import annotations

import os
import signal
import termios
import tty
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from ..output import out

STDIN = 0


def is_interactive() -> bool:
    """Does a person type here and read here, with this command in the foreground?"""
    if not (out.is_terminal(STDIN) and out.is_terminal(out.STDOUT)):
        return False
    try:
        return os.tcgetpgrp(STDIN) == os.getpgrp()  # a background job that reads is stopped by SIGTTIN
    except OSError:
        return False


def size() -> tuple[int, int] | None:
    """Columns and rows; None where the terminal does not know."""
    try:
        columns, rows = os.get_terminal_size(out.STDOUT)
    except OSError:
        return None
    return (columns, rows) if columns and rows else None


class RawTerminal:
    """Every key goes to the program, and its output comes unchanged, while the block lasts."""

    def __init__(self) -> None:
        self._before: list[Any] | None = None

    def __enter__(self) -> Self:
        self._before = termios.tcgetattr(STDIN)
        self._make_raw()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._give_back()

    def suspend(self) -> None:
        """Stop this process as job control does; returns, raw again, when it is continued."""
        self._give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._make_raw()

    def _make_raw(self) -> None:
        tty.setraw(STDIN, termios.TCSADRAIN)  # keys typed ahead are kept

    def _give_back(self) -> None:
        if self._before is not None:
            with suppress(termios.error):  # hung up: there is nothing to restore
                # Flushed: what the terminal answered to a program's questions is no command of the shell's.
                termios.tcsetattr(STDIN, termios.TCSAFLUSH, self._before)
