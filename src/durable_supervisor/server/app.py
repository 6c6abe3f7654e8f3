"""From the route table to an HTTP application."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from aiohttp import web
from pydantic import BaseModel

from ..model.errors import ErrorCode, Phase, SupervisorError
from ..supervisor.loop.logs import logger
from .following import attach, follow
from .observing import observe
from .requests.bodies import read_bytes, read_form
from .requests.errors import error_answer, http_failure, internal
from .requests.queries import read_query
from .routes import control, info, read
from .routes.info import API_VERSIONS
from .service.route import BYTES, Route
from .service.service import Call, Service
from .sockets.connections import Connection

VERSION_HEADER = "Durable-Supervisor-Api"
_VERSIONED = re.compile(r"/v([0-9]{1,9})(/|$)")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def all_routes() -> list[Route]:
    """The whole table."""
    modules = (info, control, read, follow, attach)
    return [route for module in modules for route in module.routes]


def make_app(service: Service) -> web.Application:
    """The application that answers for ``service``."""
    app = web.Application(middlewares=[observe(service.metrics), typed_errors, _admitted])
    for route in all_routes():
        app.router.add_route(route.method, route.path, _endpoint(service, route))
    return app


def _endpoint(service: Service, route: Route) -> Handler:
    """Everything that can be said of a request before its verb is reached."""

    async def endpoint(request: web.Request) -> web.StreamResponse:
        query = read_query(request.query, route.query)
        body: BaseModel | bytes | None = None
        if route.body == BYTES:
            body = await read_bytes(request, BYTES)
        elif isinstance(route.body, type):
            body = await read_form(request, route.body)
        caller = _connection(request).caller
        if caller is None:
            raise internal()
        return await route.handler(Call(request, service, caller, query, body))

    return endpoint


@web.middleware
async def typed_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Whatever goes wrong, the client gets one typed document, and no other client notices."""
    try:
        return await handler(request)
    except SupervisorError as error:
        return error_answer(error)
    except web.HTTPException as failure:
        return http_failure(failure)
    except ConnectionError:
        raise  # nobody is there to be answered
    except Exception as error:  # noqa: BLE001  a bug, which costs this request alone
        logger().error("request_failed", error=type(error).__name__, exc_info=True)
        return error_answer(internal())


@web.middleware
async def _admitted(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse whom the connection was refused for, and versions that are not ours."""
    connection = _connection(request)
    connection.busy = True
    if connection.refusal is not None:
        response = error_answer(connection.refusal)
        response.force_close()
        return response
    _check_version(request)
    return await handler(request)


def _connection(request: web.Request) -> Connection:
    protocol = request.protocol
    if not isinstance(protocol, Connection):
        raise internal()
    return protocol


def _check_version(request: web.Request) -> None:
    """Raises ``UNSUPPORTED_API_VERSION``: a client of another version is told, not guessed at."""
    found = _VERSIONED.match(request.path)
    asked = [found[1]] if found else []
    asked += request.headers.getall(VERSION_HEADER, [])
    for version in asked:
        if version not in map(str, API_VERSIONS):
            raise SupervisorError(
                ErrorCode.UNSUPPORTED_API_VERSION,
                "this service does not speak the API version that was asked for",
                phase=Phase.VALIDATE,
                hint=f"it speaks {', '.join(map(str, API_VERSIONS))}; upgrade the older of the two",
                details={"api_versions": list(API_VERSIONS)},
            )
