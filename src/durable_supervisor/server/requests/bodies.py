"""Reading what a client sends, strictly: one meaning or a refusal that names the field."""

from __future__ import annotations

import asyncio
import json
import math
import re
from typing import Any, NoReturn, TypeVar

from aiohttp import web
from pydantic import BaseModel, ValidationError

from ...model.errors import SupervisorError, invalid
from .errors import too_large

Form = TypeVar("Form", bound=BaseModel)

MAX_BODY_BYTES = 1024 * 1024
MAX_DEPTH = 64
BODY_SECONDS = 30.0  # for a client to send what it has announced
_NAME_SHOWN = 64

# Strings are matched whole, so that a bracket inside of one does not count.
# An open end counts as a string too, or a flood of quotes would be searched again from each of them.
_TOKENS = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)


async def read_bytes(request: web.Request, media_type: str) -> bytes:
    """The whole body.  Raises ``FRAME_TOO_LARGE``, ``INVALID_REQUEST``."""
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise invalid("Content-Encoding", "is not understood", "send the body as it is")
    if request.body_exists and request.content_type != media_type:
        raise invalid("Content-Type", f"must be {media_type}", f"send 'Content-Type: {media_type}'")
    if (request.content_length or 0) > MAX_BODY_BYTES:
        raise too_large("the body", MAX_BODY_BYTES)
    data = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while piece := await request.content.readany():
                data += piece
                if len(data) > MAX_BODY_BYTES:
                    raise too_large("the body", MAX_BODY_BYTES)
    except TimeoutError:
        raise invalid("body", f"was not complete after {BODY_SECONDS:g} s") from None
    except (web.PayloadAccessError, web.RequestPayloadError, ValueError):
        raise invalid("body", "does not end as its headers say") from None
    return bytes(data)


async def read_form(request: web.Request, model: type[Form]) -> Form:
    """The body as ``model``; an empty one is an empty object.

    Raises ``FRAME_TOO_LARGE``, and ``INVALID_REQUEST`` with ``details["field"]``.
    """
    return parse_form(await read_bytes(request, "application/json"), model)


def parse_form(data: bytes, model: type[Form]) -> Form:
    """JSON bytes as ``model``.  Raises ``INVALID_REQUEST`` with ``details["field"]``."""
    value = parse_json(data) if data.strip(b" \t\r\n") else {}
    try:
        # By way of JSON again: pydantic takes an enum's word for the enum only from there.
        return model.model_validate_json(json.dumps(value, ensure_ascii=False).encode())
    except UnicodeEncodeError:
        raise invalid(_unpaired(value), "has a lone surrogate, which is no Unicode text") from None
    except ValidationError as error:
        raise refusal(error, value) from None


def parse_json(data: bytes) -> Any:
    """One JSON value (RFC 8259), with no duplicate keys, no NaN or infinity, and at most 64 levels.

    Raises ``INVALID_REQUEST``.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise invalid("body", "is not UTF-8") from None
    if _depth(text) > MAX_DEPTH:
        raise invalid("body", f"is nested deeper than {MAX_DEPTH} levels")
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_number)
    except (ValueError, RecursionError):  # also of an integer with thousands of digits
        raise invalid("body", "is not JSON", "check quotes and commas; see docs/http.md") from None


def refusal(error: ValidationError, given: Any) -> SupervisorError:
    """One thing that is wrong, by field; never the value, which may be a secret."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    # Of the alternatives of a union, the one that got furthest is the one that was meant.
    worst = max(found, key=lambda one: len(one["loc"]))
    problem = worst["msg"].removeprefix("Value error, ")
    where = _path(worst["loc"], given, missing=worst["type"] == "missing")
    return invalid(_field(where), problem[:1].lower() + problem[1:])


def _path(where: tuple[int | str, ...], given: Any, *, missing: bool) -> tuple[int | str, ...]:
    """Without what is no key of the input: pydantic names the alternatives of a union in between."""
    path: list[int | str] = []
    for number, part in enumerate(where, 1):
        if isinstance(given, dict) and part in given:
            given = given[part]
        elif isinstance(given, list) and isinstance(part, int):
            given = given[part] if part < len(given) else None
        elif not (missing and number == len(where)):
            continue
        path.append(part)
    return tuple(path)


def _field(where: tuple[int | str, ...]) -> str:
    """``("command", "argv", 0)`` as ``command.argv[0]``."""
    name = ""
    for part in where:
        if isinstance(part, int):
            name += f"[{part}]"
        else:
            name += f".{part[:_NAME_SHOWN]}" if name else part[:_NAME_SHOWN]
    return name or "body"


def _depth(text: str) -> int:
    deepest = depth = 0
    for found in _TOKENS.finditer(text):
        if found[0] in ("[", "{"):
            depth += 1
            deepest = max(deepest, depth)
        elif found[0] in ("]", "}"):
            depth -= 1
    return deepest


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    form: dict[str, Any] = {}
    for name, value in pairs:
        if name in form:
            shown = name[:_NAME_SHOWN].encode("ascii", "backslashreplace").decode()
            raise invalid(shown, "stands twice in one object", "give each field once")
        form[name] = value
    return form


def _constant(word: str) -> NoReturn:
    raise invalid("body", f"has {word}, which is no JSON number")


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise invalid("body", "has a number that is too large")
    return value


def _unpaired(value: Any, where: tuple[int | str, ...] = ()) -> str:
    """The field in which the first lone surrogate stands."""
    if isinstance(value, str):
        return "" if _encodable(value) else _field(where)
    if isinstance(value, dict):
        for name, item in value.items():
            if not _encodable(name):
                return _field((*where, name.encode("ascii", "backslashreplace").decode()))
            if found := _unpaired(item, (*where, name)):
                return found
    if isinstance(value, list):
        for index, item in enumerate(value):
            if found := _unpaired(item, (*where, index)):
                return found
    return ""


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
