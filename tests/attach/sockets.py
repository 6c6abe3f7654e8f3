"""A service in this process, and viewers of it that share no code with the product's own client."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from durable_supervisor.server.server import Server
from durable_supervisor.supervisor.supervisor import Supervisor
from tests.support import PATIENCE

Form = dict[str, Any]


class Viewer:
    """One WebSocket; what comes is kept in ``told``, apart from the events."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.events: list[Form] = []
        self.told: list[Form] = []
        self._ids = itertools.count(1)

    def pause(self) -> None:
        """Read nothing more: bytes stay in the kernel, and then with the sender."""
        self._transport.pause_reading()

    def resume(self) -> None:
        self._transport.resume_reading()

    def vanish(self) -> None:
        """Without a goodbye."""
        self._transport.abort()

    @property
    def _transport(self) -> asyncio.Transport:
        transport: asyncio.Transport = self.socket._conn.transport  # type: ignore[assignment, union-attr]
        return transport

    @property
    def output(self) -> str:
        return "".join(event.get("text", "") for event in self.events if event["kind"] == "output")

    async def read(self) -> Form | None:
        """The next message; None once it is closed."""
        async with asyncio.timeout(PATIENCE):
            frame = await self.socket.receive()
        if frame.type is not aiohttp.WSMsgType.TEXT:
            return None
        form: Form = json.loads(frame.data)
        if form["type"] == "event":
            self.events.append(form["event"])
        else:
            self.told.append(form)
        return form

    async def until(self, **wanted: object) -> Form:
        """The next message that has these fields."""
        while (form := await self.read()) is not None:
            if all(form.get(name) == value for name, value in wanted.items()):
                return form
        raise AssertionError(f"closed ({self.socket.close_code}) before {wanted}; it told {self.told[-5:]}")

    async def printed(self, text: str) -> None:
        while text not in self.output:
            if await self.read() is None:
                raise AssertionError(f"{text!r} is not in {self.output!r}")

    async def rest(self) -> list[Form]:
        """Everything until it is closed."""
        while await self.read() is not None:
            pass
        return self.told

    async def ask(self, kind: str, **fields: object) -> Form:
        """Send a message and return its answer."""
        message_id = f"m{next(self._ids)}"
        await self.socket.send_str(json.dumps({"type": kind, "id": message_id, **fields}))
        return await self.until(id=message_id)

    async def type(self, text: str) -> Form:
        return await self.ask("stdin", base64=base64.b64encode(text.encode()).decode())


class Service:
    """Where viewers connect to."""

    def __init__(self, path: str) -> None:
        self.path = path

    @asynccontextmanager
    async def viewer(self, run: str, **query: object) -> AsyncIterator[Viewer]:
        words = {name: str(value).lower() for name, value in query.items()}
        async with (
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(self.path)) as session,
            session.ws_connect(f"http://localhost/v1/runs/{run}/attach", params=words) as socket,
        ):
            yield Viewer(socket)


@asynccontextmanager
async def serving(supervisor: Supervisor, **options: Any) -> AsyncIterator[Service]:
    server = Server(supervisor, **options)
    await server.start()
    try:
        yield Service(server.path)
    finally:
        await server.close(drain=PATIENCE)
