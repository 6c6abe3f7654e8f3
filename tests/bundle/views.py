"""Runs made up for reports: a view and its events, without a process."""

from __future__ import annotations

from typing import Any

from durable_supervisor.bundle.report.collect import Collector
from durable_supervisor.bundle.report.page import render
from durable_supervisor.model.events import Event, Kind
from durable_supervisor.model.view import RunView

RUN_ID = "4f7k2m9q8r3s5t6v"
RECEIPT: dict[str, Any] = {
    "attempt": 1,
    "outcome": {"kind": "exited", "code": 3, "signal": None},
    "exit": {"code": 3, "signal": None},
    "rusage": {"user_seconds": 0.1, "system_seconds": 0.02, "max_rss_kib": 9000},
    "started_at": "2026-01-02T03:04:05.000006Z",
    "finished_at": "2026-01-02T03:04:09.000006Z",
    "duration": 4.0,
    "output": {"stdout": {"bytes": 10, "dropped": 0, "complete": True}},
    "stdin_bytes": 0,
    "survivors": [],
    "stop": None,
    "incomplete": False,
    "cleanup_confirmed": True,
}


def view_of(**changes: Any) -> RunView:
    """A run that exited 3, with some fields of its inspect document changed."""
    form: dict[str, Any] = {
        "run_id": RUN_ID,
        "state": "finished",
        "request_id": "nightly",
        "owner": "local",
        "attempt": 1,
        "argv": ["make", "report"],
        "cwd": "/srv",
        "labels": {"team": "infra"},
        "limits": {"timeout": 60.0, "idle_timeout": None, "grace": 10.0, "max_stdout_bytes": 1 << 20,
                   "max_stderr_bytes": 1 << 20, "on_limit": "truncate"},
        "completion": "leader",
        "created_at": "2026-01-02T03:04:05.000006Z",
        "updated_at": "2026-01-02T03:04:09.000006Z",
        "outcome": RECEIPT["outcome"],
        "program": None,
        "worker": None,
        "receipt": RECEIPT,
        "reason": None,
        "evidence": None,
        "resolution": None,
        "retryable": False,
        "log_health": None,
        "head": 5,
        "live": None,
        "stdin": "null",
        "pty": None,
        "nested_in": None,
        "survives_unit_restart": None,
        "serial": 7,
    }  # fmt: skip
    return RunView.from_dict({**form, **changes})


def output(seq: int, data: bytes, *, stream: str = "stdout", seconds: float = 0.0) -> Event:
    return event(seq, Kind.OUTPUT, seconds, stream=stream, offset=0, data=data)


def event(seq: int, kind: str, seconds: float = 0.0, *, data: bytes = b"", **detail: object) -> Event:
    elapsed = int(seconds * 1e9)
    return Event(seq, 1_767_323_045_000_000_000 + elapsed, elapsed, kind, detail, data)


def page_of(view: RunView, events: list[Event]) -> str:
    """The whole report."""
    seen = Collector()
    for one in events:
        seen.add(one)
    return b"".join(render(view, seen)).decode("utf-8")
