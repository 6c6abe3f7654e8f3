"""A viewer's own WebSocket to the service, to which the lease on its input is bound."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

from ..model.errors import SupervisorError
from .answer import told_error
from .drive import drive
from .failures import LostError, closed, unavailable
from .messages import MAY_RETURN, input_target
from .request import Form

if TYPE_CHECKING:
    from .aio import AsyncClient
    from .calls import Patience
    from .websocket import WebSocket


class Line:
    """Connected from the first `lease` on.

    When the service goes and comes back, the lease is asked for again if it was held,
    never stolen: whoever has it by then keeps it, and ``lost`` is set.
    """

    def __init__(self, client: AsyncClient, run: str) -> None:
        self.holds_lease = False
        self.lost = asyncio.Event()  # another has taken the lease over
        self._client = client
        self._run = run
        self._ids = itertools.count(1)
        self._socket: WebSocket | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._verdict: asyncio.Future[bool | SupervisorError] | None = None  # on the lease, as last asked for
        self._regaining = False
        self._asked: dict[str, asyncio.Future[Form | None]] = {}

    async def lease(self, *, steal: bool) -> bool:
        """Raises what the service answers, and ``SERVICE_UNAVAILABLE``."""
        if self._keeping is None or self._keeping.done():
            self._verdict = asyncio.get_running_loop().create_future()
            self._keeping = asyncio.create_task(self._keep("steal" if steal else "ask"))
        elif not await self.settled():
            answer = await self.ask("lease", {"steal": steal})
            if answer is None:
                raise unavailable(LostError("it ended the connection"))
        await self.settled()
        if self._verdict is not None and isinstance(verdict := self._verdict.result(), SupervisorError):
            raise verdict
        return self.holds_lease

    async def settled(self) -> bool:
        """Is the lease held?  Waits while it is being asked for."""
        if self._verdict is not None and not self._verdict.done():
            await asyncio.wait({self._verdict})
        return self.holds_lease

    async def ask(self, kind: str, fields: Form) -> Form | None:
        """The answer to a message; None when the connection ends first.  Raises the failure that it tells."""
        if self._socket is None:
            return None
        message_id = str(next(self._ids))
        answer: asyncio.Future[Form | None] = asyncio.get_running_loop().create_future()
        self._asked[message_id] = answer
        sending = self._socket.send({"type": kind, "id": message_id, **fields})
        try:
            # To its end, whatever becomes of the caller: half a frame would spoil the next one.
            await asyncio.shield(asyncio.ensure_future(sending))
            form = await answer
        except SupervisorError:  # the connection has ended, as `_keep` is about to see
            return None
        finally:
            self._asked.pop(message_id, None)
        if form is not None and form.get("type") == "error":
            raise told_error(kind, form)
        return form

    async def close(self) -> None:
        """Hang up, which frees the lease.  Idempotent."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait({self._keeping})
        self._hang_up()
        self._decide(closed())

    async def _keep(self, writer: str) -> None:
        """Be connected, and connected again for as long as there is a lease to regain."""
        patience = self._client._calls.patience()
        while True:
            failure = unavailable(LostError("it ended the connection"))
            try:
                async with self._client._websocket(input_target(self._run, writer)) as self._socket:
                    patience.reset()
                    async for form in self._socket:
                        self._heard(form)
            except LostError as lost:
                failure = unavailable(lost)
            except SupervisorError as error:
                failure = error
            self._regaining |= self.holds_lease
            self._hang_up()
            if not self._regaining or failure.code not in MAY_RETURN or not await self._again(patience):
                self._regaining = False
                self._decide(failure)
                return
            writer = "ask"

    async def _again(self, patience: Patience) -> bool:
        if self._verdict is None or self._verdict.done():
            self._verdict = asyncio.get_running_loop().create_future()
        return await drive(patience.again())

    def _heard(self, form: Form) -> None:
        kind, answer = form.get("type"), self._asked.get(str(form.get("id")))
        if kind == "lease":
            self._judge(held=form.get("held") is True, taken=form.get("result") == "lost")
        elif kind == "error" and answer is None:  # of the lease that the address asks for
            self._regaining = False
            self._decide(told_error("lease", form))
        if answer is not None and not answer.done():
            answer.set_result(form)

    def _judge(self, *, held: bool, taken: bool) -> None:
        self.holds_lease = held
        if held:
            self.lost.clear()
        elif taken or self._regaining:
            self.lost.set()
        self._regaining = False
        self._decide(held)

    def _decide(self, verdict: bool | SupervisorError) -> None:
        if self._verdict is not None and not self._verdict.done():
            self._verdict.set_result(verdict)

    def _hang_up(self) -> None:
        self._socket, self.holds_lease = None, False
        for answer in self._asked.values():
            if not answer.done():
                answer.set_result(None)
