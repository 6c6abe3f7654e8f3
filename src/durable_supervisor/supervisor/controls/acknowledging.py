"""Telling workers how much of a run's output was consumed: often, and without waiting for an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ...model.arguments import position
from ...model.errors import ErrorCode, SupervisorError
from .dial import Dial, not_confirmed

Message = dict[str, object]

_CONNECT_SECONDS = 20.0
_PAUSE = 0.01


class Acknowledger:
    """One frame for each time, on a connection that stays until the run is over, or until `close`.

    ``tell_directly``: over a channel that the caller holds; False without one.  ``dial``: a new
    connection to the run's worker, within so many seconds; it raises ``NOT_RUNNING``.
    """

    def __init__(
        self,
        tell_directly: Callable[[str, Message], Awaitable[bool]],
        dial: Callable[[str, float], Awaitable[Dial]],
    ) -> None:
        self._tell_directly = tell_directly
        self._dial = dial
        self._dials: dict[str, Dial] = {}
        self._listening: set[asyncio.Task[None]] = set()

    async def acknowledge(self, run: str, stdout: int, stderr: int) -> None:
        """Nothing for a run that is over.  Raises ``NOT_CONFIRMED`` where its worker cannot be reached."""
        counts = {"stdout": position("stdout", stdout), "stderr": position("stderr", stderr)}
        message: Message = {"op": "acknowledge", **counts}
        if await self._tell_directly(run, message):
            return
        while (dial := self._dials.get(run) or await self._connect(run)) is not None:
            try:
                await dial.send(message)
                return
            except OSError:  # its worker is about to be gone
                self._forget(run, dial)

    async def close(self) -> None:
        """Hang up everywhere.  Idempotent."""
        for task in self._listening:
            task.cancel()
        if self._listening:
            await asyncio.wait(set(self._listening))

    async def _connect(self, run: str) -> Dial | None:
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                dial = await self._taken(run)
        except TimeoutError:
            raise not_confirmed(run, "an acknowledgement", _CONNECT_SECONDS) from None
        except SupervisorError as error:
            if error.code is not ErrorCode.NOT_RUNNING:
                raise
            return None
        self._dials[run] = dial
        task = asyncio.create_task(self._until_end(run, dial))
        self._listening.add(task)
        task.add_done_callback(self._listening.discard)
        return dial

    async def _taken(self, run: str) -> Dial:
        """A connection that the worker has really taken in, not one too many: what is sent on it counts."""
        while True:
            dial = await self._dial(run, _CONNECT_SECONDS)
            try:
                await dial.send({"op": "ping"})
                if await dial.receive() is not None:
                    return dial
            except OSError:
                pass
            except BaseException:
                dial.close()
                raise
            dial.close()
            await asyncio.sleep(_PAUSE)

    async def _until_end(self, run: str, dial: Dial) -> None:
        """Nothing more is said on it: what comes is its end."""
        try:
            while await dial.receive() is not None:
                continue
        finally:
            self._forget(run, dial)
            dial.close()

    def _forget(self, run: str, dial: Dial) -> None:
        if self._dials.get(run) is dial:
            del self._dials[run]
