"""Connections: who is let in, who has to go for a new one, and how broken requests are answered."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from aiohttp import web
from aiohttp.abc import AbstractAccessLogger

from ...model.errors import SupervisorError
from ..requests.errors import http_failure, unreadable
from ..requests.peers import Caller
from .stall import LOOKS

_UCRED = struct.Struct("@iII")  # unix(7): pid, uid, gid
_IDLE_SECONDS = 75.0  # also for a client that never gets to the end of its headers
_LINGER_SECONDS = 2.0  # to read on after a refusal, so that a client that still sends gets to see it
_MAX_HEADER_BYTES = 16 * 1024
REFUSAL_SECONDS = 5.0
MAX_REFUSALS = 32  # connections that are kept for a moment, only to be told why they are refused


def peer_uid(connection: socket.socket) -> int:
    """The uid of whoever connected, as the kernel noted it then.  Raises OSError."""
    _, uid, _ = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return int(uid)


class _NoAccessLog(AbstractAccessLogger):
    """The metrics' middleware has it."""

    enabled = False

    def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
        """Never called."""


class Connection(web.RequestHandler):
    """One client.  ``caller`` is None, and ``refusal`` what it is told, when it is not let in."""

    __slots__ = ("_stall", "_watch", "busy", "caller", "idle_since", "refusal")

    def __init__(
        self, manager: web.Server, caller: Caller | None, refusal: SupervisorError | None, stall: float
    ) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(
            manager,
            loop=loop,
            access_log_class=_NoAccessLog,
            auto_decompress=False,
            keepalive_timeout=_IDLE_SECONDS if refusal is None else REFUSAL_SECONDS,
            lingering_time=_LINGER_SECONDS,
            max_field_size=_MAX_HEADER_BYTES,
            max_line_size=_MAX_HEADER_BYTES,
            tcp_keepalive=False,
        )
        self.caller = caller
        self.refusal = refusal
        self._stall = stall
        self._watch: asyncio.TimerHandle | None = None
        self.busy = False  # a request is in flight
        self.idle_since = loop.time()

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send the answer; what aiohttp refuses before any handler is put in our words."""
        self._watch_progress(sys.maxsize)
        try:
            answer = http_failure(resp) if isinstance(resp, web.HTTPException) else resp
            done: tuple[web.StreamResponse, bool] = await super().finish_response(request, answer, start_time)
            return done
        finally:
            if self._watch is not None:
                self._watch.cancel()
            self.busy = False
            self.idle_since = asyncio.get_running_loop().time()

    def _watch_progress(self, unsent: int, stood: int = 0) -> None:
        """Drop a client that takes nothing of its answer, and would keep it in our memory.

        ``stood``: looks in a row that have found nothing taken.  One may be late because this process
        stood still itself, and with it what it would have sent.
        """
        if self.transport is None:
            return
        left = self.transport.get_write_buffer_size()
        stood = stood + 1 if 0 < left == unsent else 0
        if stood == LOOKS:
            self.transport.abort()
            return
        loop = asyncio.get_running_loop()
        self._watch = loop.call_later(self._stall / LOOKS, self._watch_progress, left, stood)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Not HTTP: the parser gave up.  Errors of handlers never come here, the middleware has them."""
        if request.writer.output_size > 0:
            raise ConnectionResetError  # in the middle of an answer there is no way to say so
        response = unreadable(status)
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: what a client sends is not ours to log."""


@dataclass(frozen=True, slots=True, eq=False)  # each one is itself, also beside others just like it
class Held:
    """An open connection to `decide` about; ``idle_since`` is None while a request may be in flight."""

    uid: int
    idle_since: float | None


def decide(held: Iterable[Held], uid: int, most: int, share: int) -> Literal["admit", "refuse"] | Held:
    """May ``uid`` have one more connection?  A `Held`: yes, if this one is closed for it.

    ``most`` in all, ``share`` of them for one uid, so that nobody can lock all others out.
    The longest idle goes first.
    """
    everybody = list(held)
    own = [one for one in everybody if one.uid == uid]
    if len(own) >= share:
        candidates = own
    elif len(everybody) >= most:
        candidates = everybody
    else:
        return "admit"
    idle = [one for one in candidates if one.idle_since is not None]
    if not idle:
        return "refuse"
    longest: Held = min(idle, key=lambda one: one.idle_since or 0.0)
    return longest
