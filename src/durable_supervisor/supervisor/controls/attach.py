"""A viewer of one run: what was printed, what comes, and, for one viewer at a time, the input."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Self

from ...model.answers import ControlReceipt, StopReceipt
from ...model.command import check_timeout
from ...model.errors import ErrorCode, Phase, SupervisorError
from ...model.events import Event
from ...model.ids import new_id
from ...model.view import RunView
from .controls import Controller
from .dial import not_confirmed
from .line import Line

if TYPE_CHECKING:
    from ...model.arguments import BytesLike
    from ..observer import Observer
    from ..reading.lookup import Lookup

_LEASE_SECONDS = 10.0
_STDIN_SECONDS = 30.0
_UNLEASE_SECONDS = 1.0


class Attachment:
    """Iterate for events; leaving detaches and ends nothing.

    ``cursor`` is the seq of the last event handed out: attach there again.  Any number
    of viewers see the same events, each at its own pace, from the log.

    Input needs no lease as long as nobody holds it.  While somebody does, everybody
    else's `write_stdin` and `resize` raise ``WRITER_BUSY``.  The lease ends with the
    attachment, however that ends; ``lost`` is set when another viewer took it over before.
    """

    def __init__(self, observer: Observer, lookup: Lookup, run: str, after: int) -> None:
        self._observer = observer
        self._run = run
        self._line = Line()
        self._leasing = asyncio.Lock()  # one connection, however many ask
        self._closes = 0  # tells a `lease` that was called before a `close` from a later one
        self._controller = Controller(lookup, observer.wait, self._over_the_line)
        self.cursor = after

    async def __aenter__(self) -> Self:
        await self._observer.find(self._run)  # an unknown run is told at once
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of the lease, so that the next viewer can have it at once.  Idempotent.

        A `lease` under way gets ``SUPERVISOR_CLOSED``; a later one takes it up again.
        """
        try:
            if self.holds_lease:
                async with asyncio.timeout(_UNLEASE_SECONDS):
                    await self._line.ask({"op": "unlease", "id": _control_id()})
        except TimeoutError:
            pass  # the worker frees it when it sees the connection's end
        finally:
            await self._line.close()
            self._closes += 1

    async def __aiter__(self) -> AsyncGenerator[Event, None]:
        async with aclosing(self._observer.follow(self._run, after=self.cursor)) as events:
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

    async def lease(self, *, steal: bool = False, timeout: float = _LEASE_SECONDS) -> bool:
        """Become the one writer.  False when another viewer is, unless ``steal``: then that one is told.

        Raises ``NOT_RUNNING``, ``NOT_CONFIRMED``, and ``SUPERVISOR_CLOSED`` when it was closed meanwhile.
        """
        check_timeout("timeout", timeout)
        closes = self._closes
        try:
            async with asyncio.timeout(timeout), self._leasing:
                self._check_open_since(closes)
                return self.holds_lease or await self._ask_for_lease(steal, timeout, closes)
        except TimeoutError:
            raise not_confirmed(self._run, "the lease", timeout) from None

    async def inspect(self) -> RunView:
        """See `Observer.inspect`."""
        return await self._observer.inspect(self._run)

    async def write_stdin(
        self, data: BytesLike, *, eof: bool = False, timeout: float = 30.0
    ) -> ControlReceipt:
        """See `Observer.write_stdin`."""
        return await self._controller.write_stdin(self._run, data, eof, timeout)

    async def write_piece(self, piece: BytesLike, *, following: int, eof: bool) -> ControlReceipt:
        """See `Observer.write_piece`."""
        return await self._controller.write_stdin(self._run, piece, eof, _STDIN_SECONDS, following)

    async def resize(self, columns: int, rows: int, *, timeout: float = 5.0) -> ControlReceipt:
        """See `Observer.resize`."""
        return await self._controller.resize(self._run, columns, rows, timeout)

    async def stop(self, *, grace: float | None = None, timeout: float | None = None) -> StopReceipt:
        """See `Observer.stop`."""
        return await self._observer.stop(self._run, grace=grace, timeout=timeout)

    async def _ask_for_lease(self, steal: bool, seconds: float, closes: int) -> bool:
        while True:
            if not self._line.connected:
                await self._connect(seconds, closes)
            # A new id each time: a lease granted to a connection that has ended is worth nothing.
            answer = await self._line.ask({"op": "lease", "id": _control_id(), "steal": steal})
            if answer is not None:
                if answer.get("type") == "error":  # a worker older than leases: there nobody can hold one
                    self._line.holds_lease = True
                return self.holds_lease
            self._check_open_since(closes)
            await asyncio.sleep(0.01)  # its end, or a hang-up: the evidence tells which

    async def _connect(self, seconds: float, closes: int) -> None:
        dial = await self._controller.dial(self._run, seconds)
        try:
            self._check_open_since(closes)
        except SupervisorError:
            dial.close()
            raise
        self._line.use(dial)

    def _check_open_since(self, closes: int) -> None:
        if self._closes != closes:
            raise SupervisorError(
                ErrorCode.SUPERVISOR_CLOSED,
                f"the attachment to run {self._run} was closed while it asked for the lease",
                phase=Phase.CONTROL,
                hint="call `lease` again to go on with it",
            )

    async def _over_the_line(
        self, run_id: str, message: dict[str, object], blob: bytes
    ) -> dict[str, object] | None:
        return await self._line.ask(message, blob)


def _control_id() -> str:
    return new_id("ctl", os.urandom)
