"""A WebSocket (RFC 6455) to the service, for JSON objects in text frames."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Final

from ..model.errors import SupervisorError
from .drive import drive
from .failures import LostError, unavailable
from .framing import Framing
from .link import Link
from .request import ANSWER_SECONDS, STREAM_SECONDS, Form

_GOODBYE_SECONDS: Final = 1.0


class WebSocket:
    """Iterate for what comes, until either side ends it; `send` from any number of tasks.

    Raises ``SERVICE_UNAVAILABLE`` when the connection ends without a goodbye.
    """

    def __init__(self, link: Link, framing: Framing) -> None:
        self._link = link
        self._framing = framing
        self._come: list[Form] = []
        self._sending = asyncio.Lock()  # a frame goes out whole before the next begins

    @classmethod
    async def open(cls, link: Link, target: str) -> WebSocket:
        """Raises what the service answers instead."""
        websocket = cls(link, Framing(target))
        await websocket._flush()
        while not websocket._framing.accepted:
            await websocket._receive(ANSWER_SECONDS)
        return websocket

    @property
    def close_code(self) -> int | None:
        """Why the other side has closed it, once it has."""
        return self._framing.close_code

    async def send(self, form: Mapping[str, object]) -> None:
        """One object; returns when it is handed over to the system."""
        try:
            self._framing.send(form)
        except LostError as lost:
            raise unavailable(lost) from lost
        await self._flush()

    async def __aiter__(self) -> AsyncIterator[Form]:
        while self._come or self.close_code is None:
            while self._come:
                yield self._come.pop(0)
            if self.close_code is None:
                await self._receive(STREAM_SECONDS)  # the service pings four times in so long

    async def close(self) -> None:
        """Say goodbye, if there is still somebody to hear it.  The connection is its maker's to close."""
        self._framing.close()
        try:
            await self._flush(_GOODBYE_SECONDS)
        except SupervisorError:
            return

    async def _receive(self, silence: float) -> None:
        try:
            self._come += self._framing.feed(await drive(self._link.read(silence)))
        except LostError as lost:
            raise unavailable(lost) from lost
        await self._flush()

    async def _flush(self, silence: float = ANSWER_SECONDS) -> None:
        async with self._sending:
            data, self._framing.outgoing = self._framing.outgoing, b""
            try:
                await drive(self._link.push(data, silence))
            except LostError as lost:
                raise unavailable(lost) from lost
