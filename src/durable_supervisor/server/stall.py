"""Telling a client that is slow from one that has stopped reading."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class StalledError(ConnectionError):
    """It takes nothing any more."""


async def unless_stalled(
    write: Coroutine[Any, Any, None], transport: asyncio.WriteTransport, seconds: float
) -> None:
    """Wait for a write for as long as the client takes anything at all.

    Raises `StalledError` when it has taken nothing for ``seconds``; what was written then still
    waits in the transport.  Raises what the write raises.
    """
    writing = asyncio.ensure_future(write)
    unsent: int | None = None
    try:
        while not (await asyncio.wait({writing}, timeout=seconds))[0]:
            left = transport.get_write_buffer_size()
            if unsent is not None and left >= unsent:
                raise StalledError
            unsent = left
    finally:
        writing.cancel()
    await writing
