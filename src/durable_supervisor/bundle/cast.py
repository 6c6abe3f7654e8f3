"""A run with a terminal as asciicast v2 (https://docs.asciinema.org/manual/asciicast/v2), line by line."""

from __future__ import annotations

import codecs
import json
import shlex
from collections.abc import Iterable, Iterator

from ..model.events import Event, Kind
from ..model.view import RunView
from .timebase import Timebase

_encode = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode


def cast_lines(view: RunView, events: Iterable[Event]) -> Iterator[bytes]:
    """The header, then output (``o``) and changes of size (``r``) in their order.

    A character split over two events is put together; bytes that are not UTF-8 show as U+FFFD,
    since the format is text.  Times are seconds of the run's life, all attempts in a row.
    """
    yield _line(_header(view))
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    timebase = Timebase()
    seconds = 0.0
    for event in events:
        seconds = round(timebase.seconds(event), 6)
        if event.kind == Kind.OUTPUT:
            text = decoder.decode(event.data)
            if text:
                yield _line([seconds, "o", text])
        elif size := resized_to(event):
            yield _line([seconds, "r", f"{size[0]}x{size[1]}"])
    rest = decoder.decode(b"", True)
    if rest:
        yield _line([seconds, "o", rest])


def resized_to(event: Event) -> tuple[int, int] | None:
    """Columns and rows that the terminal has from this event on; None for every other event."""
    detail = event.detail
    resized = detail.get("op") == "resize" and detail.get("result") == "resized"
    if event.kind != Kind.CONTROL_APPLIED or not resized:
        return None
    columns, rows = detail.get("columns"), detail.get("rows")
    return (columns, rows) if isinstance(columns, int) and isinstance(rows, int) else None


def _header(view: RunView) -> dict[str, object]:
    pty = view.pty or {}
    return {
        "version": 2,
        "width": pty.get("columns"),
        "height": pty.get("rows"),
        "timestamp": view.created_ns // 1_000_000_000,
        "command": shlex.join(view.argv),
        "title": f"run {view.id}",
        "env": {"TERM": pty.get("term")},
    }


def _line(form: object) -> bytes:
    return _encode(form).encode("ascii") + b"\n"
