"""The service's log: one line per event on stderr, JSON or text, written by a thread of its own.

A log that nobody reads must not hold up the service: beyond a bound lines are dropped,
and counted.  Nothing is logged but ids, states, codes and figures: no argv, no
environment, no output, no text of an unforeseen exception.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import traceback
from typing import Any

import structlog
from structlog.typing import EventDict

from ...model.tokens import without_tokens

STDERR = 2
FORMATS = ("json", "text")
LEVELS = ("debug", "info", "warning", "error")
MAX_WAITING = 10_000  # lines
_LAST_WORDS_SECONDS = 1.0


class ServiceLog:
    """Everything that goes through `logging` in this process, from `start` to `stop`."""

    def __init__(self, level: str, form: str, descriptor: int = STDERR) -> None:
        self._level = getattr(logging, level.upper())
        self._handler = _ThreadHandler(descriptor)
        self._handler.setFormatter(_formatter(form, colours=_wants_colours(descriptor)))

    def start(self) -> None:
        """Only for a process of our own: it sets up the root logger."""
        root = logging.getLogger()
        root.addHandler(self._handler)
        root.setLevel(max(self._level, logging.WARNING))  # of libraries only what is wrong
        logging.getLogger("durable_supervisor").setLevel(self._level)
        logging.captureWarnings(True)

    def stop(self) -> None:
        """Write what waits, as far as somebody reads it."""
        logging.captureWarnings(False)
        logging.getLogger().removeHandler(self._handler)
        self._handler.close()


class _ThreadHandler(logging.Handler):
    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._lines: queue.Queue[str | None] = queue.Queue(MAX_WAITING)
        self._dropped = 0
        self._thread = threading.Thread(target=self._write_all, name="service-log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._lines.put_nowait(self.format(record))
        except queue.Full:
            self._dropped += 1

    def close(self) -> None:
        super().close()
        try:
            self._lines.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(_LAST_WORDS_SECONDS)

    def _write_all(self) -> None:
        while (line := self._lines.get()) is not None:
            self._write(line)
            dropped, self._dropped = self._dropped, 0
            if dropped:
                self._write(self.format(_dropped(dropped)))

    def _write(self, line: str) -> None:
        rest = line.encode("utf-8", "backslashreplace") + b"\n"
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            return  # the terminal or the pipe is gone; the service goes on


def _wants_colours(descriptor: int) -> bool:
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"  # https://no-color.org
    return os.isatty(descriptor) and not plain


def _dropped(count: int) -> logging.LogRecord:
    """Written by the thread itself: in the queue it could be dropped as well."""
    fields = {"event": "log_lines_dropped", "count": count}
    return logging.makeLogRecord({"levelno": logging.WARNING, "levelname": "WARNING", "fields": fields})


def _formatter(form: str, *, colours: bool) -> logging.Formatter:
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if form == "json"
        else structlog.dev.ConsoleRenderer(colors=colours, repr_native_str=True)
    )
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            _fields,
            structlog.stdlib.add_log_level,
            structlog.processors.TimeStamper(
                fmt="iso", utc=True, key="time" if form == "json" else "timestamp"
            ),
        ],
        processors=[
            _where,
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            _without_tokens,
            _ordered,
            renderer,
        ],
    )


def _fields(_: Any, __: str, event: EventDict) -> EventDict:
    """What our own events consist of; of a library's message its first line (asyncio's others quote)."""
    fields = getattr(event["_record"], "fields", None)
    event.update(fields if fields is not None else {"event": str(event["event"]).partition("\n")[0]})
    return event


def _where(_: Any, __: str, event: EventDict) -> EventDict:
    """Of an exception its type and where it was raised: its text may quote what it choked on."""
    raised = event.pop("exc_info", None) or event["_record"].exc_info
    if isinstance(raised, tuple) and raised[1] is not None:
        event["error"] = type(raised[1]).__name__
        event["where"] = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(raised[2])]
    return event


def _without_tokens(_: Any, __: str, event: EventDict) -> EventDict:
    """Ids and codes hold none, but a library's message or the name of a file may."""
    return {name: without_tokens(value) for name, value in event.items()}


def _ordered(_: Any, __: str, event: EventDict) -> EventDict:
    first = ("time", "level", "event")
    return {
        name: event[name] for name in (*first, *(key for key in event if key not in first)) if name in event
    }
