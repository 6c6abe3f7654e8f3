"""What every request leaves behind: its figures, and a line of the access log at level debug."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Middleware

from ..supervisor.logs import logger
from .errors import ErrorAnswer
from .metrics import Metrics

_START: Final = "/v1/start"
_UNMATCHED: Final = "unmatched"  # whatever a client asked for: paths are unbounded, and its own
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def observe(metrics: Metrics) -> Middleware:
    """The outermost middleware: it sees the answer as the client does."""

    @web.middleware
    async def observed(request: web.Request, handler: Handler) -> web.StreamResponse:
        began, response, status = time.monotonic(), None, 499  # 499: the client went away before the answer
        try:
            response = await handler(request)
            status = response.status
            return response
        finally:
            seconds = time.monotonic() - began
            route, method = _route(request), request.method if request.method in _METHODS else "other"
            metrics.request(route, method, status, seconds)
            code = response.code.value if isinstance(response, ErrorAnswer) else None
            if code is not None:
                metrics.refused(code)
            if route == _START and isinstance(response, web.Response) and status in (200, 201):
                metrics.started(_admission(response), seconds)
            logger().debug(
                "request", route=route, method=method, status=status, seconds=round(seconds, 6), code=code
            )

    return observed


def _route(request: web.Request) -> str:
    """The template that matched, which names no run."""
    resource = request.match_info.route.resource
    return _UNMATCHED if resource is None else resource.canonical


def _admission(response: web.Response) -> str:
    body = response.body
    return str(json.loads(body)["admission"]) if isinstance(body, bytes) else "new"
