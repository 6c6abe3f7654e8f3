"""What is said first of a dispatched run, by its worker or by us, and who waits for it."""

from __future__ import annotations

import asyncio

from ...journal.answer import Answer


class FirstWord:
    """Queued, released, not started, finished, the channel's end, or that nothing is known.

    It is set at once, but notified of in a callback of its own.  The start that waits for it, and its
    caller, go on within that call.  They may end the loop; or run it, as hosts with nest_asyncio do, until
    something else comes through the channel, whose reader is not called while a call of it is under way.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._word: str | None = None
        self._waiting: Answer | None = None

    async def wait(self) -> str:
        """For one caller, once."""
        if self._word is None:
            self._waiting = Answer(self._loop)
            await self._waiting
        assert self._word is not None  # noqa: S101  nobody is notified before
        return self._word

    def set(self, word: str) -> None:
        """Unless there was one already."""
        if self._word is not None:
            return
        self._word = word
        if self._waiting is not None:
            self._loop.call_soon(self._notify, self._waiting)

    @staticmethod
    def _notify(waiting: Answer) -> None:
        if not waiting.done():  # else it was cancelled
            waiting.set_result(None)
