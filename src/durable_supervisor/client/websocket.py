"""A WebSocket (RFC 6455) to the service, for JSON objects in text frames."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Final

import wsproto
from wsproto import events
from wsproto.connection import ConnectionState

from ..model.errors import SupervisorError
from .answer import told_error
from .drive import drive
from .failures import LostError, odd_answer, unavailable
from .link import Link
from .request import ANSWER_SECONDS, STREAM_SECONDS, Form
from .steps import Steps

_GOODBYE_SECONDS: Final = 1.0


class Framing:
    """What comes and goes, as frames.  No I/O.

    ``outgoing`` are bytes to be sent, the answers to pings and to a close among them;
    ``close_code`` is the other side's once it has closed (1000 to 4999, RFC 6455, 7.4).
    """

    def __init__(self, target: str) -> None:
        self._protocol = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
        self.outgoing = self._protocol.send(events.Request(host="localhost", target=target))
        self.accepted = False
        self.close_code: int | None = None
        self._rejected = bytearray()
        self._text: list[str] = []

    def send(self, form: Mapping[str, object]) -> None:
        """Put an object into `outgoing`."""
        self.outgoing += self._protocol.send(events.TextMessage(json.dumps(form, separators=(",", ":"))))

    def close(self) -> None:
        """Put a goodbye into `outgoing`, unless one was said."""
        if self._protocol.state is ConnectionState.OPEN:
            self.outgoing += self._protocol.send(events.CloseConnection(code=1000))

    def feed(self, data: bytes) -> list[Form]:
        """The objects that ``data`` completes.  Raises `LostError`, and what the service answers instead."""
        if not data:
            raise LostError("it ended the connection", sent=True)
        try:
            self._protocol.receive_data(data)
            return list(self._take())
        except wsproto.utilities.ProtocolError as error:
            raise LostError(f"it does not keep to the protocol ({error})", sent=True) from error

    def _take(self) -> Iterator[Form]:
        for event in self._protocol.events():
            if isinstance(event, events.AcceptConnection):
                self.accepted = True
            elif isinstance(event, events.RejectData):
                self._rejected += event.data
                if event.body_finished:
                    raise _refusal(bytes(self._rejected))
            elif isinstance(event, events.Ping):
                self.outgoing += self._protocol.send(event.response())
            elif isinstance(event, events.CloseConnection):
                if self._protocol.state is ConnectionState.OPEN:  # wsproto's own verdict
                    raise LostError(f"it does not keep to the protocol ({event.reason})", sent=True)
                self.close_code = int(event.code)
                if self._protocol.state is ConnectionState.REMOTE_CLOSING:
                    self.outgoing += self._protocol.send(event.response())
            elif isinstance(event, events.TextMessage):
                self._text.append(event.data)
                if event.message_finished:
                    text, self._text = "".join(self._text), []
                    yield _object(text)


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
        self._framing.send(form)
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
                await drive(self._write(data, silence))
            except LostError as lost:
                raise unavailable(lost) from lost

    def _write(self, data: bytes, silence: float) -> Steps[None]:
        try:
            yield from self._link.write(data, silence)
        except OSError as error:
            raise LostError(f"the connection broke ({error.strerror})", sent=True) from error


def _object(text: str) -> dict[str, Any]:
    try:
        form = json.loads(text)
    except (ValueError, RecursionError):
        form = None
    if not isinstance(form, dict):
        raise odd_answer("attach")
    return form


def _refusal(body: bytes) -> SupervisorError:
    try:
        return told_error("attach", _object(body.decode("utf-8", "replace")))
    except SupervisorError as error:
        return error
