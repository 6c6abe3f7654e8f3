"""Long blocking work for an event loop, which can be broken off."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Stopped(Exception):  # noqa: N818  no failure: nobody waits for the rest
    """The errand was cancelled."""


class Errand:
    """Pieces of work, one after the other, each in a thread.

    A cancelled caller waits until the piece under way has stopped: what it wrote can be removed then.
    """

    def __init__(self) -> None:
        self._stopped = threading.Event()

    def check(self) -> None:
        """Raises `Stopped` once the caller is cancelled.  Call it now and then in a long piece of work."""
        if self._stopped.is_set():
            raise Stopped

    async def run(self, work: Callable[[], T]) -> T:
        """Await ``work()``."""
        call = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            self._stopped.set()
            await asyncio.wait([call])
            call.exception()  # heard, whatever it is
            raise
