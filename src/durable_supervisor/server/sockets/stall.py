"""Telling a client that is slow from one that has stopped reading."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any, Final

LOOKS: Final = 2  # in a row that find nothing taken, within the time that a client has
_FITS = 16 * 1024  # of an empty transport, which asks for a pause at 64 KiB (asyncio's default)


class StalledError(ConnectionError):
    """It takes nothing any more."""


def fits(size: int, transport: asyncio.WriteTransport) -> bool:
    """Is a write of ``size`` bytes done at once?  Then nobody needs to wait for it, nor a task to do that."""
    return size <= _FITS and not transport.get_write_buffer_size()


async def unless_stalled(
    write: Coroutine[Any, Any, object], transport: asyncio.WriteTransport, seconds: float
) -> None:
    """Wait for a write for as long as the client takes anything at all.

    Raises `StalledError` when it has taken nothing for ``seconds``, and what the write raises.  That is
    looked at more than once: one look may be late because this process stood still itself.
    The write itself goes on, also when the waiting is cancelled: it ends with the connection.
    All writes of a connection wait for one future of aiohttp's (`BaseProtocol._drain_helper`),
    which a cancelled one would spoil for every later one.
    """
    writing = asyncio.ensure_future(write)
    writing.add_done_callback(_retrieve)
    unsent, stood = sys.maxsize, 0
    while not (await asyncio.wait({writing}, timeout=seconds / LOOKS))[0]:
        left = transport.get_write_buffer_size()
        stood = stood + 1 if left >= unsent else 0
        if stood == LOOKS:
            raise StalledError
        unsent = left
    writing.result()


def _retrieve(writing: asyncio.Future[object]) -> None:
    if not writing.cancelled():
        writing.exception()  # whoever waited may be gone, and then nobody else looks
