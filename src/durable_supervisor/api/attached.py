"""What `attach` answers with, in process or over a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Protocol, Self

from ..model.answers import ControlReceipt, StopReceipt
from ..model.arguments import BytesLike
from ..model.events import Event


class Attached(Protocol):
    """A viewer of one run, as `durable_supervisor.Attachment` documents it."""

    cursor: int

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def close(self) -> None: ...

    def __aiter__(self) -> AsyncGenerator[Event, None]: ...

    @property
    def holds_lease(self) -> bool: ...

    @property
    def lost(self) -> asyncio.Event: ...

    async def lease(self, *, steal: bool = False, timeout: float = 10.0) -> bool: ...

    async def write_stdin(
        self, data: BytesLike, *, eof: bool = False, timeout: float = 30.0
    ) -> ControlReceipt: ...

    async def resize(self, columns: int, rows: int, *, timeout: float = 5.0) -> ControlReceipt: ...

    async def stop(self, *, grace: float | None = None, timeout: float | None = None) -> StopReceipt: ...
