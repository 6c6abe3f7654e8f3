"""The OpenAPI description (3.1), made from the route table and the wire models.

``python -m durable_supervisor.server.routes.openapi FILE`` writes it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from ...model.errors import ErrorCode
from ...wire.documents import SCHEMAS, tidied
from ..requests.bodies import MAX_BODY_BYTES
from ..requests.errors import RETRY_AFTER, STATUS
from ..requests.queries import Parameter
from ..service.route import ANY_FAILURE, BYTES, JSON, RUN, STREAM, Route

_REF = "#/components/schemas/{model}"
_ERROR = SCHEMAS["error"]
_DESCRIPTION = (
    "Verbs over a Unix socket, for `curl --unix-socket` and any HTTP/1.1 client. "
    "The answers are the documents that the command line prints with --json; docs/http.md has examples."
)
_STREAM_TEXT = (
    "Server-sent events: `id` is the seq (of the feed: the position), `event` the kind, `data` the document. "
    "Besides there are comments as heartbeats, and `end`, `error` and `bye` without an id."
)

Schema = dict[str, Any]


def describe(routes: Sequence[Route]) -> Schema:
    """The whole document."""
    paths: dict[str, Schema] = {}
    for route in sorted(routes, key=lambda one: one.path):
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "durable-supervisor", "version": "1", "description": _DESCRIPTION},
        "servers": [{"url": "http://localhost", "description": "the host's name is ignored"}],
        "paths": paths,
        "components": {"schemas": _schemas(routes)},
    }


@cache
def served() -> bytes:
    """The document as it is served and checked in."""
    from ..app import all_routes  # app itself serves it

    return (json.dumps(describe(all_routes()), indent=2) + "\n").encode("ascii")


def _operation(route: Route) -> Schema:
    operation: Schema = {
        "operationId": route.path.removeprefix("/v1/")
        .replace("runs/{run}/", "")
        .replace("/", "-")
        .strip("-"),
        "summary": route.summary,
        "parameters": [*_path_parameters(route), *map(_parameter, route.query), *_headers(route)],
        "responses": {**_answers(route), **_failures(route)},
    }
    if route.body is not None:
        operation["requestBody"] = _body(route.body)
    return operation


def _path_parameters(route: Route) -> Iterable[Schema]:
    if route.path.startswith(RUN):
        yield {
            "name": "run",
            "in": "path",
            "required": True,
            "description": "a run id, or a unique beginning of one",
            "schema": {"type": "string", "pattern": "^[0-9a-z]{1,16}$"},
        }


def _headers(route: Route) -> Iterable[Schema]:
    if route.media_type == STREAM:
        yield {
            "name": "Last-Event-ID",
            "in": "header",
            "description": "the id of the last message seen; wins over after",
            "schema": {"type": "integer", "minimum": 0},
        }


def _parameter(parameter: Parameter) -> Schema:
    schema = dict(parameter.schema)
    return {
        "name": parameter.name,
        "in": "query",
        "description": parameter.description,
        "schema": {"type": "array", "items": schema} if parameter.repeated else schema,
    }


def _body(body: type[BaseModel] | str) -> Schema:
    if isinstance(body, str):
        binary = {"type": "string", "format": "binary", "maxLength": MAX_BODY_BYTES}
        return {"content": {BYTES: {"schema": binary}}, "description": "the bytes to write"}
    needed = any(field.is_required() for field in body.model_fields.values())
    return {"required": needed, "content": {JSON: {"schema": _ref(body)}}}


def _answers(route: Route) -> Schema:
    found: Schema = {}
    for status, name in route.answers.items():
        described: Schema = {"description": route.summary if name is None else f"The {name} document."}
        if route.media_type == STREAM:
            described["description"] = _STREAM_TEXT
        if name is not None:
            described["content"] = {route.media_type: {"schema": _ref(SCHEMAS[name])}}
        elif status < 200:
            described["description"] = "The WebSocket is open."
        else:
            kind = "object" if route.media_type == JSON else "string"
            described["content"] = {route.media_type: {"schema": {"type": kind}}}
        found[str(status)] = described
    return found


def _failures(route: Route) -> Schema:
    """One entry for each status, naming its codes."""
    codes: dict[int, list[ErrorCode]] = {}
    for code in (*ANY_FAILURE, *_of_bodies(route), *route.failures):
        same = codes.setdefault(STATUS[code], [])
        if code not in same:
            same.append(code)
    return {str(status): _failure(codes[status]) for status in sorted(codes)}


def _of_bodies(route: Route) -> Iterable[ErrorCode]:
    if route.body is not None:
        yield ErrorCode.FRAME_TOO_LARGE


def _failure(codes: list[ErrorCode]) -> Schema:
    described: Schema = {
        "description": ", ".join(code.value for code in codes),
        "content": {JSON: {"schema": _ref(_ERROR)}},
    }
    if any(code in RETRY_AFTER for code in codes):
        described["headers"] = {
            "Retry-After": {"description": "seconds", "schema": {"type": "integer", "minimum": 0}}
        }
    return described


def _ref(model: type[BaseModel]) -> Schema:
    return {"$ref": _REF.format(model=model.__name__)}


def _schemas(routes: Sequence[Route]) -> Schema:
    """Answers may grow fields; requests are closed, since the service refuses what it does not know."""
    names = {name for route in routes for name in route.answers.values() if name is not None} | {"error"}
    bodies = {route.body for route in routes if isinstance(route.body, type)}
    return {
        **_definitions([SCHEMAS[name] for name in names], closed=False),
        **_definitions(bodies, closed=True),
    }


def _definitions(models: Iterable[type[BaseModel]], *, closed: bool) -> Schema:
    ordered = sorted(models, key=lambda model: model.__name__)
    _, schema = models_json_schema(
        [(model, "validation") for model in ordered], by_alias=True, ref_template=_REF
    )
    made = tidied(schema.get("$defs", {}), closed=closed)
    return dict(sorted(made.items())) if isinstance(made, dict) else {}


def main(arguments: list[str]) -> int:
    """Write it to the one file given; returns the exit code."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m durable_supervisor.server.routes.openapi FILE\n")
        return 2
    Path(arguments[0]).write_bytes(served())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
