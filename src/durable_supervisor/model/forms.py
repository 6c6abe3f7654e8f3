"""Back from the JSON forms to values: what a client makes of an answer.

Apart from `events`, which every worker imports.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Mapping
from typing import Any

from .events import Event, Kind


def wall_ns(text: str) -> int:
    """Unix nanoseconds of what `events.iso_time` wrote.  Raises ValueError."""
    import calendar  # brings datetime and locale along, which most callers never need

    seconds, _, fraction = text.partition(".")
    if len(fraction) != 7 or not fraction.endswith("Z"):
        raise ValueError("not a time in UTC with microseconds")
    moment = time.strptime(seconds, "%Y-%m-%dT%H:%M:%S")
    return calendar.timegm(moment) * 1_000_000_000 + int(fraction[:6]) * 1000


def event_of(form: Mapping[str, Any]) -> Event:
    """An event from its document; times have its microseconds.  Raises KeyError, TypeError, ValueError."""
    kind, detail, data = form["kind"], form.get("detail", {}), b""
    if kind == Kind.OUTPUT:
        detail = {"stream": form["stream"], "offset": form["offset"]}
        exact = form.get("base64")
        data = form["text"].encode() if exact is None else base64.b64decode(exact, validate=True)
    elapsed_ns = round(form["elapsed"] * 1e9)
    return Event(int(form["seq"]), wall_ns(form["time"]), elapsed_ns, str(kind), dict(detail), data)
