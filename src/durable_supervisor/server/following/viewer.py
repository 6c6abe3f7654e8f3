"""One attached viewer: events out, input in, over one WebSocket (RFC 6455)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, Final

from aiohttp import WSCloseCode, WSMsgType, web

from ...model.answers import ControlReceipt
from ...model.errors import SupervisorError, invalid
from ...model.schema import schema_name
from ...supervisor.controls.attach import Attachment
from ...supervisor.loop.logs import logger
from ...wire.attach import AttachForm, AttachMessage, EofMessage, LeaseMessage, ResizeMessage, StdinMessage
from ..requests.bodies import MAX_BODY_BYTES, parse_form
from ..requests.errors import to_json, too_large
from ..service.service import Service
from ..sockets.stall import StalledError, fits, unless_stalled

MAX_MESSAGE_BYTES: Final = 2 * MAX_BODY_BYTES  # a piece of stdin in base64, and its frame of JSON
_MAX_TAKEN: Final = 2 * MAX_MESSAGE_BYTES  # beyond it the connection is closed with 1009 unread
_MAX_INPUTS: Final = 4  # pieces of stdin that wait for a program that does not read
_LINGER_SECONDS: Final = 10.0  # at least, without a byte taken, before a viewer's last messages are dropped
_CLOSE_SECONDS: Final = 3600.0  # for all of them; a slow reader may need some time

Form = Mapping[str, object]


def web_socket() -> web.WebSocketResponse:
    """Pings are ours: a viewer that reads slowly must not be lost for answering late."""
    return web.WebSocketResponse(compress=False, max_msg_size=_MAX_TAKEN, timeout=_CLOSE_SECONDS)


class Viewer:
    """Ends with the run, the viewer or the service; in memory is one event, and a few pieces of input."""

    def __init__(
        self,
        service: Service,
        socket: web.WebSocketResponse,
        transport: asyncio.WriteTransport,
        attached: Attachment,
    ) -> None:
        self._service = service
        self._socket = socket
        self._transport = transport
        self._attached = attached
        self._inputs: asyncio.Queue[StdinMessage | EofMessage] = asyncio.Queue(_MAX_INPUTS)
        self._closing: tuple[int, Form | None] = (WSCloseCode.OK, None)

    async def serve(self, *, writer: str, size: tuple[int, int] | None, events: bool) -> None:
        """Until one side ends it."""
        try:
            await self._first_lease(writer, size)  # it may be gone already: before there is any work
            work = [self._read(), self._write_input(), self._tell_losses(), self._heartbeat(), self._drain()]
            await _first_of([*work, self._show()] if events else work)
        except StalledError:
            cursor = self._attached.cursor
            logger().info("viewer_dropped", cursor=cursor)
            self._closing = (WSCloseCode.TRY_AGAIN_LATER, {"type": "dropped", "cursor": cursor})
        except ConnectionError:
            self._transport.abort()
            return
        await self._close()

    async def _close(self) -> None:
        code, last = self._closing
        patience = max(_LINGER_SECONDS, self._service.stall)
        try:
            if last is not None:
                await unless_stalled(self._socket.send_str(_text(last)), self._transport, patience)
            await unless_stalled(self._socket.close(code=code, drain=False), self._transport, patience)
        except ConnectionError:
            pass
        finally:
            self._transport.abort()  # whoever has not read it by now never will

    # Outwards.

    async def _show(self) -> None:
        try:
            async for event in self._attached:
                text = event.to_json().decode("ascii")
                await self._send_text(f'{{"type":"event","event":{text}}}')
            state = (await self._attached.inspect()).state
        except SupervisorError as error:
            self._closing = (WSCloseCode.INTERNAL_ERROR, _failed(error))
            return
        await self._send({"type": "end", "state": state.value})

    async def _tell_losses(self) -> None:
        while True:
            await self._attached.lost.wait()
            self._attached.lost.clear()
            await self._send({"type": "lease", "held": False, "result": "lost"})

    async def _heartbeat(self) -> None:
        while True:
            await asyncio.sleep(self._service.heartbeat)
            await unless_stalled(self._socket.ping(), self._transport, self._service.stall)

    async def _drain(self) -> None:
        await self._service.draining.wait()
        self._closing = (WSCloseCode.SERVICE_RESTART, {"type": "bye"})

    async def _send(self, form: Form) -> None:
        await self._send_text(_text(form))

    async def _send_text(self, text: str) -> None:
        if fits(len(text), self._transport):  # its length in bytes: all JSON here is ASCII
            await self._socket.send_str(text)
            return
        await unless_stalled(self._socket.send_str(text), self._transport, self._service.stall)

    # Inwards.

    async def _read(self) -> None:
        while True:
            frame = await self._socket.receive()
            if frame.type in (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR):
                return
            message_id: str | None = None
            try:
                if frame.type is not WSMsgType.TEXT:
                    raise invalid("message", "must be text", "send stdin as base64; see docs/http.md")
                message = _message_of(frame.data)
                message_id = message.id
                await self._take(message)
            except SupervisorError as error:
                await self._send(_failed(error, message_id))

    async def _take(self, message: AttachMessage) -> None:
        if isinstance(message, StdinMessage | EofMessage):
            await self._inputs.put(message)  # when too many wait, no more is read
        elif isinstance(message, ResizeMessage):
            receipt = await self._attached.resize(message.columns, message.rows)
            await self._send(_receipt(message.id, receipt))
        else:
            await self._send(await self._lease(message))

    async def _write_input(self) -> None:
        """Apart from the rest: a program that does not read must not keep a resize or a lease waiting."""
        while True:
            message = await self._inputs.get()
            eof = isinstance(message, EofMessage)
            try:
                receipt = await self._attached.write_piece(message.data, following=message.following, eof=eof)
            except SupervisorError as error:
                await self._send(_failed(error, message.id))
            else:
                await self._send(_receipt(message.id, receipt))

    async def _lease(self, message: LeaseMessage) -> Form:
        held = await self._attached.lease(steal=message.steal)
        return {"type": "lease", "id": message.id, "held": held, "result": "granted" if held else "held"}

    async def _first_lease(self, writer: str, size: tuple[int, int] | None) -> None:
        """What the address asks for: the lease, and with it a size."""
        if writer == "none":
            await self._send({"type": "lease", "held": False, "result": "none"})
            return
        try:
            held = await self._attached.lease(steal=writer == "steal")
            await self._send({"type": "lease", "held": held, "result": "granted" if held else "held"})
            if held and size is not None:
                await self._attached.resize(*size)
        except SupervisorError as error:
            await self._send(_failed(error))


def _message_of(text: str) -> AttachMessage:
    """Raises ``INVALID_REQUEST``, ``FRAME_TOO_LARGE``."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > MAX_MESSAGE_BYTES:
        raise too_large("the message", MAX_MESSAGE_BYTES)
    return parse_form(data or b"?", AttachForm).root


def _text(form: Form) -> str:
    return to_json(form).decode("ascii")


def _receipt(message_id: str, receipt: ControlReceipt) -> Form:
    return {"type": "receipt", "id": message_id, "schema": schema_name("control"), **receipt.to_dict()}


def _failed(error: SupervisorError, message_id: str | None = None) -> Form:
    named = {} if message_id is None else {"id": message_id}
    return {"type": "error", **named, "error": error.to_dict()}


async def _first_of(work: list[Coroutine[Any, Any, None]]) -> None:
    """Return, or raise, with the first; the others are ended."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in done:
        task.result()
