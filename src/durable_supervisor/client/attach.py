"""A viewer of one run over the service's socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Self

from ..model.answers import ControlReceipt, StopReceipt
from ..model.arguments import BytesLike, stdin_bytes, terminal_size
from ..model.command import check_timeout
from ..model.events import Event
from ..model.view import RunView
from .line import Line
from .messages import control_receipt, input_messages, not_confirmed, perhaps_done
from .request import Form

if TYPE_CHECKING:
    from .aio import AsyncClient


class Attachment:
    """See `durable_supervisor.Attachment`: the same, answered by a service.

    Events and input have a connection each, so that a flood of output never holds up
    a receipt, and a viewer that reads slowly keeps its lease.  Both outlive the service:
    events go on behind the cursor; a lease that was held is asked for again.
    """

    def __init__(self, client: AsyncClient, run: str, after: int) -> None:
        self._client = client
        self._run = run
        self._line = Line(client, run)
        self.cursor = after

    async def __aenter__(self) -> Self:
        await self._client.find(self._run)  # an unknown run is told at once
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of the lease and the connection.  Idempotent."""
        await self._line.close()

    async def __aiter__(self) -> AsyncGenerator[Event, None]:
        async with aclosing(self._client.follow(self._run, after=self.cursor)) as events:
            async for event in events:
                self.cursor = event.seq
                yield event

    @property
    def holds_lease(self) -> bool:
        """Is this viewer the one writer?"""
        return self._line.holds_lease

    @property
    def lost(self) -> asyncio.Event:
        """Set when another viewer has taken the lease over."""
        return self._line.lost

    async def lease(self, *, steal: bool = False, timeout: float = 10.0) -> bool:
        """Become the one writer; see `durable_supervisor.Attachment.lease`."""
        check_timeout("timeout", timeout)
        try:
            async with asyncio.timeout(timeout):
                return await self._line.lease(steal=steal)
        except TimeoutError:
            raise not_confirmed("lease", self._run, timeout) from None

    async def inspect(self) -> RunView:
        """See `Observer.inspect`."""
        return await self._client.inspect(self._run)

    async def write_stdin(
        self, data: BytesLike, *, eof: bool = False, timeout: float = 30.0
    ) -> ControlReceipt:
        """See `Observer.write_stdin`.  Raises ``SUBMISSION_INDETERMINATE`` where it may have arrived."""
        whole = stdin_bytes(data)
        if not await self._line.settled():
            return await self._client.write_stdin(self._run, whole, eof=eof, timeout=timeout)
        for kind, fields in input_messages(whole, eof=eof):
            receipt = await self._control(kind, fields, timeout)
        return receipt

    async def resize(self, columns: int, rows: int, *, timeout: float = 5.0) -> ControlReceipt:
        """See `Observer.resize`."""
        size = {"columns": terminal_size("columns", columns), "rows": terminal_size("rows", rows)}
        if not await self._line.settled():
            return await self._client.resize(self._run, columns, rows, timeout=timeout)
        return await self._control("resize", size, timeout)

    async def stop(self, *, grace: float | None = None, timeout: float | None = None) -> StopReceipt:
        """See `Observer.stop`."""
        return await self._client.stop(self._run, grace=grace, timeout=timeout)

    async def _control(self, kind: str, fields: Form, timeout: float) -> ControlReceipt:
        check_timeout("timeout", timeout)
        try:
            async with asyncio.timeout(timeout):
                form = await self._line.ask(kind, fields)
        except TimeoutError:
            raise not_confirmed(kind, self._run, timeout) from None
        if form is None:
            raise perhaps_done(kind, self._run)
        return control_receipt(kind, form)
