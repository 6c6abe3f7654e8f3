"""A run's pseudo-terminal (pty(7)), instead of pipes.  Loaded only by a run that asks for one.

The program's end, the slave, is its stdin, stdout and stderr and its session's
controlling terminal.  Our end, the master, is read by a `Capture` and written to by a
`TerminalFeed`.  When the worker dies the kernel closes the master, and the program's
foreground group gets a SIGHUP, as if a real terminal had been taken away.
"""

from __future__ import annotations

import fcntl
import os
import termios

from ..process.program import StartFailure
from .poller import Poller
from .stdin import Done, StdinFeed

_IFLAG, _LFLAG, _CC = 0, 3, 6  # of tcgetattr's list
_IUTF8 = 0o40000  # erase a whole character, not its last byte; termios has no name for it before 3.14


def open_terminal(columns: int, rows: int) -> tuple[int, int]:
    """Master and slave, of this size.

    Raises StartFailure: ENOENT where there is no devpts, ENOSPC when all terminals are taken.
    """
    try:
        master, slave = os.openpty()  # neither is inherited, nor becomes our controlling terminal
        resize(master, columns, rows)
        modes = termios.tcgetattr(slave)
        modes[_IFLAG] |= _IUTF8
        termios.tcsetattr(slave, termios.TCSANOW, modes)
    except (OSError, termios.error) as error:
        raise StartFailure(error.args[0], "terminal", "/dev/ptmx") from None
    return master, slave


def resize(master: int, columns: int, rows: int) -> None:
    """Where that changes the size, the kernel sends SIGWINCH to the foreground group (TIOCSWINSZ)."""
    termios.tcsetwinsize(master, (rows, columns))


def as_printed(secrets: list[bytes]) -> list[bytes]:
    """The same secrets with those of several lines also as a terminal prints them: with CR LF."""
    return secrets + [secret.replace(b"\n", b"\r\n") for secret in secrets if b"\n" in secret]


class TerminalFeed(StdinFeed):
    """What is typed at the terminal, until its session's leader has ended.

    Till then we hold the program's end open too: a program that has closed its own may open
    ``/dev/tty`` later (to ask for a password, say), and meanwhile must not seem to have hung up.

    A piece is ``written`` once the terminal has taken it.  What becomes of it there is the
    terminal's affair: it may echo it, edit it, and without raw mode it keeps at most 4095
    bytes of a line (termios(3)).
    """

    def __init__(self, master: int, slave: int, poller: Poller) -> None:
        # Descriptors of its own: who reads closes the one, the program's start the other.
        super().__init__(fcntl.fcntl(master, fcntl.F_DUPFD_CLOEXEC, 3), poller)
        self._slave = fcntl.fcntl(slave, fcntl.F_DUPFD_CLOEXEC, 3)
        self._line_begins = True

    def write(self, data: bytes, done: Done) -> None:
        if data:
            self._line_begins = data.endswith((b"\n", b"\r"))
        super().write(data, done)

    def end(self, done: Done) -> None:
        """Type the end-of-file character, after everything queued.  The terminal stays open.

        In the middle of a line the first one only hands over what there is of it: then two.
        Done with ``eof_sent``.
        """
        canonical, eof = self._end_of_file() if self.accepts else (True, b"")
        keys = eof if self._line_begins or not canonical else eof * 2
        self._line_begins = True

        def typed(result: str, count: int) -> None:
            self.written -= count  # it is no input of the program's
            done("eof_sent" if result == "written" else result, 0)

        super().write(keys, typed)

    def resize(self, columns: int, rows: int) -> bool:
        """False when nobody has the terminal any more."""
        if not self.accepts:
            return False
        try:
            resize(self._fd, columns, rows)
        except termios.error:
            return False
        return True

    def _close(self) -> None:
        """Our hold on the program's end.  The master goes with the worker only: closing it hangs up."""
        os.close(self._slave)

    def _end_of_file(self) -> tuple[bool, bytes]:
        """Does the terminal look for it just now, and which one is it?"""
        try:
            modes = termios.tcgetattr(self._fd)
        except termios.error:  # it is gone: as little is known as is lost
            return True, b"\4"
        eof = modes[_CC][termios.VEOF]
        return bool(modes[_LFLAG] & termios.ICANON), eof if isinstance(eof, bytes) and eof != b"\0" else b"\4"
