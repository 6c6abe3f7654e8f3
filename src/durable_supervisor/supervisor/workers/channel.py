"""The supervisor's end of a worker's channel, in an event loop, and a run's assignment to a worker."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ...process import forks

if TYPE_CHECKING:
    from .spare import KeptWorker


class Channel:
    """Of one run after the other, for as long as the worker has any.

    All of them share one reader in the loop: to make one takes longer than to read all that a short run says.
    """

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self.end = end
        self._loop = asyncio.get_running_loop()
        self._heard: Callable[[], None] | None = None

    def listen(self, heard: Callable[[], None]) -> None:
        """From now on call ``heard`` alone when there is something to read or the worker is gone."""
        if self._heard is None:
            self._loop.add_reader(self.end.fileno(), self._hear)
        self._heard = heard

    def ignore(self) -> None:
        """Call nobody.  Idempotent."""
        if self._heard is not None:
            self._heard = None
            self._loop.remove_reader(self.end.fileno())

    def close(self) -> None:
        """Idempotent."""
        if self.end.fileno() >= 0:
            self.ignore()
            self._loop.remove_writer(self.end.fileno())  # of what was being sent
            forks.close_socket(self.end)

    def _hear(self) -> None:
        if self._heard is not None:
            self._heard()


class Assignment(NamedTuple):
    """Of a run to a worker: what its supervisor keeps."""

    channel: Channel
    unsent: memoryview  # of the spec; the worker begins once it has all of it
    worker: KeptWorker | None  # where it may have further runs
