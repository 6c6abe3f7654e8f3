"""Server-sent events (HTML Living Standard, 9.2): one stream to one follower.

What a follower does not read waits in the log, not here: beyond the transport's
own small buffer nothing more is read for it.  One that takes nothing at all for a
while is dropped; its cursor is the last id it has seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator

from aiohttp import web

from ..service.service import Service
from ..sockets.stall import StalledError, fits, unless_stalled

_HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-store"}
_PIECE = 64 * 1024
_BATCH = 512 * 1024
_COMMENT = b": heartbeat\n\n"


def message(event: str, text: bytes, position: int | None = None) -> bytes:
    """One message; ``text`` is JSON in one line."""
    identity = b"" if position is None else b"id: %d\n" % position
    return b"%sevent: %s\ndata: %s\n\n" % (identity, event.encode("ascii"), text)


def batches(messages: Iterable[bytes]) -> Iterator[bytes]:
    """Many small ones at once; of large ones not more than a few are in memory as JSON."""
    batch: list[bytes] = []
    size = 0
    for one in messages:
        batch.append(one)
        size += len(one)
        if size >= _BATCH:
            yield b"".join(batch)
            batch, size = [], 0
    if batch:
        yield b"".join(batch)


class Stream:
    """An open answer that messages are written to."""

    def __init__(self, response: web.StreamResponse, transport: asyncio.Transport, stall: float) -> None:
        self.response = response
        self._transport = transport
        self._stall = stall
        self._turn = asyncio.Lock()  # to send a message: none comes within another
        self._clock = asyncio.get_running_loop().time
        self._sent_at = self._clock()

    @classmethod
    async def open(cls, request: web.Request, stall: float) -> Stream:
        """Send the head.  Raises ConnectionError where the client is gone."""
        response = web.StreamResponse(headers=_HEADERS)
        await response.prepare(request)
        if request.transport is None:
            raise ConnectionResetError
        return cls(response, request.transport, stall)

    async def send(self, data: bytes) -> None:
        """Hand over ``data``, in pieces, as fast as the follower reads.

        Raises `StalledError`, and ConnectionError where the client is gone.
        """
        async with self._turn:
            for begin in range(0, len(data), _PIECE):
                await self._send(data[begin : begin + _PIECE])
        self._sent_at = self._clock()

    async def pump(self, source: AsyncGenerator[bytes, None]) -> None:
        """Send all that ``source`` gives.  Raises what it raises, and what `send` does."""
        async for data in source:
            await self.send(data)

    async def end_between_messages(self, pumping: asyncio.Task[None]) -> None:
        """Cancel a `pump`, but not before what it is just sending is there as a whole."""
        async with self._turn:
            pumping.cancel()

    def quiet_after(self, seconds: float) -> float:
        """How long until nothing has been sent for ``seconds``; not sooner than that while something is."""
        return seconds if self._turn.locked() else max(self._sent_at + seconds - self._clock(), 0.0)

    async def _send(self, piece: bytes) -> None:
        if fits(len(piece), self._transport):
            await self.response.write(piece)
            return
        try:
            await unless_stalled(self.response.write(piece), self._transport, self._stall)
        except StalledError:
            self._transport.abort()  # what is buffered will never be read
            raise


async def deliver(service: Service, stream: Stream, source: AsyncGenerator[bytes, None]) -> bool:
    """Write what ``source`` gives, and a comment whenever it has been quiet for a while.

    True when the source has come to its end; False when the service drains before.
    Raises what the source raises, `StalledError`, and ConnectionError.
    """
    draining = asyncio.create_task(service.draining.wait())
    pumping = asyncio.create_task(stream.pump(source))
    try:
        while not pumping.done() and not draining.done():
            quiet = stream.quiet_after(service.heartbeat)
            await asyncio.wait({pumping, draining}, timeout=quiet, return_when=asyncio.FIRST_COMPLETED)
            if not pumping.done() and stream.quiet_after(service.heartbeat) == 0:
                await stream.send(_COMMENT)
        if not pumping.done():
            await stream.end_between_messages(pumping)
            await asyncio.wait({pumping})
        if pumping.cancelled():
            return False
        pumping.result()
        return True
    finally:
        draining.cancel()
        pumping.cancel()
        await asyncio.wait({pumping, draining})
        await source.aclose()
