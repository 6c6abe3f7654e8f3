"""How one piece of code serves both faces, asyncio and threads.

Whatever talks to the service is a generator that does its own non-blocking I/O and yields
only what it has to wait for; `aio` and `sync` wait, each in its way.  (psycopg's generators
are the model.)
"""

from __future__ import annotations

import socket
from collections.abc import Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")


class Wait:
    """Until ``sock`` is readable (``write``: writable), at the longest ``seconds``; without one, so long.

    Answered with True when it is, with False when the time was over first.
    """

    __slots__ = ("seconds", "sock", "write")

    def __init__(self, sock: socket.socket | None, seconds: float | None, *, write: bool = False) -> None:
        self.sock = sock
        self.seconds = seconds
        self.write = write


Steps: TypeAlias = Generator[Wait, bool, T]


def pause(seconds: float) -> Steps[None]:
    """Nothing, for so long."""
    yield Wait(None, seconds)
