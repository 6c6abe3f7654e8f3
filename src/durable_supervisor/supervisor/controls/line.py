"""A viewer's own connection to a worker, to which the lease on its input is bound."""

from __future__ import annotations

import asyncio

from .dial import Dial

Message = dict[str, object]


class Line:
    """One `Dial` at a time, with answers matched to questions by id.

    The worker frees the lease when the connection ends, so it needs no renewal and
    survives nothing that the viewer does not.
    """

    def __init__(self) -> None:
        self.holds_lease = False
        self.lost = asyncio.Event()  # another has taken the lease over
        self._dial: Dial | None = None
        self._listening: asyncio.Task[None] | None = None
        self._asked: dict[str, asyncio.Future[Message | None]] = {}

    @property
    def connected(self) -> bool:
        return self._dial is not None

    def use(self, dial: Dial) -> None:
        """Speak over this connection from now on."""
        self._dial = dial
        self._listening = asyncio.create_task(self._listen(dial))

    async def ask(self, message: Message, blob: bytes = b"") -> Message | None:
        """The worker's answer; None without a connection, or when it ends first."""
        if self._dial is None:
            return None
        control_id = str(message["id"])
        answer: asyncio.Future[Message | None] = asyncio.get_running_loop().create_future()
        self._asked[control_id] = answer
        try:
            await self._dial.send(message, blob)
            return await answer
        except OSError:
            return None
        finally:
            self._asked.pop(control_id, None)

    async def close(self) -> None:
        """Hang up, which frees the lease.  Idempotent."""
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.cancel()
            await asyncio.wait({listening})
        self._hang_up()

    async def _listen(self, dial: Dial) -> None:
        while (message := await dial.receive()) is not None:
            self._heard(message)
        self._hang_up()

    def _hang_up(self) -> None:
        if self._dial is not None:
            self._dial.close()
            self._dial = None
        self.holds_lease = False
        for answer in self._asked.values():
            if not answer.done():
                answer.set_result(None)

    def _heard(self, message: Message) -> None:
        # Here, not where the answer is awaited: what comes next may already take it away again.
        if message.get("op") == "lease" and message.get("result") == "granted":
            self.holds_lease = True
            self.lost.clear()
        elif message.get("type") == "lease_lost":
            self.holds_lease = False
            self.lost.set()
        answer = self._asked.get(str(message.get("id")))
        if answer is not None and not answer.done():
            answer.set_result(message)
