"""Back from the JSON forms to values: what a client makes of an answer.

Apart from `events`, which every worker imports.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from .events import Event, Kind

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME_LENGTH = len("1970-01-01T00:00:00.000000Z")


def wall_ns(text: str) -> int:
    """Unix nanoseconds of what `events.iso_time` wrote.  Raises ValueError."""
    if len(text) != _TIME_LENGTH or not text.endswith("Z"):
        raise ValueError("not a time in UTC with microseconds")
    # Not strptime, which costs as much as all the rest of reading an event.
    since = datetime.fromisoformat(text) - _EPOCH
    return (since.days * 86400 + since.seconds) * 1_000_000_000 + since.microseconds * 1000


def event_of(form: Mapping[str, Any]) -> Event:
    """An event from its document; times have its microseconds.  Raises KeyError, TypeError, ValueError."""
    kind, detail, data = form["kind"], form.get("detail", {}), b""
    if kind == Kind.OUTPUT:
        detail = {"stream": form["stream"], "offset": form["offset"]}
        exact = form.get("base64")
        data = form["text"].encode() if exact is None else base64.b64decode(exact, validate=True)
    elapsed_ns = round(form["elapsed"] * 1e9)
    return Event(int(form["seq"]), wall_ns(form["time"]), elapsed_ns, str(kind), dict(detail), data)
