"""The frames of a WebSocket (RFC 6455) to the service, for JSON objects as text.  No I/O."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import wsproto
from wsproto import events
from wsproto.connection import ConnectionState

from ..model.errors import SupervisorError
from .answer import told_error
from .failures import LostError, odd_answer
from .request import Form


class Framing:
    """What comes and goes, as frames.

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
        """Put an object into `outgoing`.  Raises `LostError` once the other side has said goodbye."""
        if self._protocol.state is not ConnectionState.OPEN:
            raise LostError("it ended the connection")
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
