"""What every request leaves behind: its figures, and a line of the access log at level debug."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Middleware

from ..supervisor.loop.logs import logger
from .requests.errors import ErrorAnswer
from .service.metrics import Metrics
from .sockets.connections import Connection

_START: Final = "/v1/start"
_UNMATCHED: Final = "unmatched"  # whatever a client asked for: paths are unbounded, and its own
_CLIENT_GONE: Final = 499  # before there was an answer; nginx's number for it
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def observe(metrics: Metrics) -> Middleware:
    """The outermost middleware: it sees the answer as the client does."""

    @web.middleware
    async def observed(request: web.Request, handler: Handler) -> web.StreamResponse:
        began = time.monotonic()
        response: web.StreamResponse | None = None
        try:
            response = await handler(request)
            return response
        finally:
            _note(metrics, request, response, time.monotonic() - began)

    return observed


def _note(
    metrics: Metrics, request: web.Request, response: web.StreamResponse | None, seconds: float
) -> None:
    route, method = _route(request), request.method if request.method in _METHODS else "other"
    status = _CLIENT_GONE if response is None else response.status
    code = response.code.value if isinstance(response, ErrorAnswer) else None
    metrics.request(route, method, status, seconds)
    if code is not None:
        metrics.refused(code)
    if route == _START and isinstance(response, web.Response) and status in (200, 201):
        metrics.started(_admission(response), seconds)
    logger().debug(
        "request",
        principal=_principal(request),
        route=route,
        method=method,
        status=status,
        seconds=round(seconds, 6),
        code=code,
    )


def _principal(request: web.Request) -> str | None:
    protocol = request.protocol
    caller = protocol.caller if isinstance(protocol, Connection) else None
    return None if caller is None else caller.principal


def _route(request: web.Request) -> str:
    """The template that matched, which names no run."""
    resource = request.match_info.route.resource
    return _UNMATCHED if resource is None else resource.canonical


def _admission(response: web.Response) -> str:
    body = response.body
    return str(json.loads(body)["admission"]) if isinstance(body, bytes) else "new"
