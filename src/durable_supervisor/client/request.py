"""One request to the service, ready to be sent, and what to make of its answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

T = TypeVar("T")

JSON = "application/json"
BYTES = "application/octet-stream"
EVENT_STREAM = "text/event-stream"

# How long the service may be silent before its connection counts as lost.  For a call that
# itself takes a while, this comes on top.
ANSWER_SECONDS = 30.0
STREAM_SECONDS = 60.0  # the same for a stream: four of its heartbeats

Query = Iterable[tuple[str, str]]
Form = Mapping[str, Any]


class Resend(Enum):
    """What becomes of a call whose connection ends before its answer."""

    NEVER = "never"  # it may have been carried out, and carrying it out twice is not the same
    ONCE = "once"  # it changes nothing: asked again, once, on a new connection
    PERSIST = "persist"  # its request id makes it safe: sent again for as long as the client may reconnect


@dataclass(frozen=True, slots=True)
class Request:
    """``subject`` names what it is about, for errors: run id, request id.

    ``silence``: seconds without a byte after which its connection counts as lost.  ``patient``: the
    answer may take any time, for as long as the service answers others.
    """

    verb: str
    method: str
    target: str
    resend: Resend = Resend.NEVER
    body: bytes = field(default=b"", repr=False)  # may hold secrets
    content_type: str = JSON
    accept: str = JSON
    silence: float = ANSWER_SECONDS
    patient: bool = False
    subject: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request, and what its answer stands for.  ``make`` raises KeyError, TypeError, ValueError."""

    request: Request
    make: Callable[[Form], T]


def get(verb: str, target: str, query: Query = (), *, silence: float = ANSWER_SECONDS) -> Request:
    """A read."""
    return Request(verb, "GET", with_query(target, query), Resend.ONCE, silence=silence)


def post(verb: str, target: str, form: Form, *, resend: Resend = Resend.NEVER, **rest: Any) -> Request:
    """A deed; ``rest`` are further fields of `Request`."""
    return Request(verb, "POST", target, resend, to_json(form), **rest)


def to_json(form: Form) -> bytes:
    """A body.  ASCII, in which undecodable bytes of names stay visible as lone surrogates."""
    return json.dumps(form, allow_nan=False, separators=(",", ":")).encode("ascii")


def with_query(target: str, query: Query) -> str:
    encoded = urlencode(list(query))
    return f"{target}?{encoded}" if encoded else target


def run_path(run: str, verb: str) -> str:
    """``/v1/runs/<run>/<verb>``."""
    return f"/v1/runs/{quote(run, safe='')}/{verb}"
