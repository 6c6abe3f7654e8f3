"""How long somebody is waited for: one timer for all who are waited for at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Patience:
    """Calls back whoever is still waited for after ``seconds``.

    A timer for each would cost a busy loop more than what it mostly does, which is to be cancelled.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._late: dict[Callable[[], None], float] = {}  # what to call, and when: the first is the next
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, late: Callable[[], None]) -> None:
        """Call ``late`` in time, unless it is ended before."""
        self._late[late] = due = self._loop.time() + self._seconds
        if self._timer is None:
            self._timer = self._loop.call_at(due, self._due)

    def end(self, late: Callable[[], None]) -> None:
        """Nobody waits for it any more.  Idempotent; no timer is left where nobody waits."""
        self._late.pop(late, None)
        if not self._late and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self) -> None:
        self._timer = None
        now = self._loop.time()
        for late in [late for late, due in self._late.items() if due <= now]:
            del self._late[late]
            late()
        if self._timer is not None:  # who was called has begun another, which is not the next
            self._timer.cancel()
            self._timer = None
        if self._late:
            self._timer = self._loop.call_at(next(iter(self._late.values())), self._due)
