"""Hears many channels through one reader of the event loop.

A reader of its own costs a channel more than the three messages of a short run do: the loop asks of each
whether it is a transport's, enters it in two tables, and makes a handle for each time that it can be read.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable


class Ears:
    """Calls whoever can be read, once in each turn of the loop until it is.

    A forked copy of the process has the descriptor too, as it has the loop's own: no lock hangs on it.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._epoll = select.epoll()
        self._heard: dict[int, Callable[[], None]] = {}
        self._loop.add_reader(self._epoll.fileno(), self._hear)

    def add(self, fd: int, heard: Callable[[], None]) -> None:
        """Call ``heard`` while there is something to read, or the other end has closed.  Raises OSError."""
        self._epoll.register(fd, select.EPOLLIN)
        self._heard[fd] = heard

    def remove(self, fd: int) -> None:
        """To be called before ``fd`` is closed.  Idempotent."""
        if self._heard.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def close(self) -> None:
        """Idempotent."""
        if not self._epoll.closed:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._heard.clear()

    def _hear(self) -> None:
        for fd, _ in self._epoll.poll(0):
            heard = self._heard.get(fd)
            if heard is not None:  # else one that was called before has closed it
                heard()
