"""What a person types: taken from the terminal at once, handed on to be sent in its turn."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from ..output import out
from .keys import DetachKeys
from .terminal import STDIN

_READ = 4096
_MOST = 1024 * 1024
_CTRL_C = b"\x03"


class Typed:
    """Reads the terminal whatever the program does, so that the keys that leave always work.

    A program that does not read its input makes what is typed wait; beyond a bound it
    is refused with a bell, as a terminal does (IMAXBEL in termios(3)).  ``wanted``:
    there is somebody to send it to; without, Ctrl-C leaves as well.
    """

    def __init__(self, keys: DetachKeys, leave: Callable[[], None]) -> None:
        self.wanted = True
        self.ended = False  # Ctrl-D of a terminal that is not raw, or it has hung up
        self._keys = keys
        self._leave = leave
        self._waiting = bytearray()
        self._news = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(STDIN, self._ready)

    @property
    def idle(self) -> bool:
        """Does nothing wait to be sent?"""
        return not self._waiting

    def close(self) -> None:
        """Leave the terminal to others.  Idempotent."""
        self._loop.remove_reader(STDIN)

    async def next(self) -> bytes:
        """All that waits to be sent; nothing only once it has ``ended``."""
        await self._news.wait()
        self._news.clear()
        data = bytes(self._waiting)
        self._waiting.clear()
        return data

    def _ready(self) -> None:
        try:
            data = os.read(STDIN, _READ)
        except BlockingIOError:
            return
        except OSError:  # EIO: the terminal has hung up
            data = b""
        if not data:
            self.ended = True
            self.close()
            self._news.set()
            return
        passed, leave = self._keys.feed(data)
        if self.wanted and passed:
            self._take(passed)
        if leave or (not self.wanted and _CTRL_C in data):
            self._leave()

    def _take(self, data: bytes) -> None:
        if len(self._waiting) + len(data) > _MOST:
            ring()
            return
        self._waiting += data
        self._news.set()


def ring() -> None:
    """Tell a person that what was typed does not arrive."""
    if out.ready(out.STDOUT):
        os.write(out.STDOUT, b"\a")
