"""What the host part of a test hands back to the test, which may outlive it: a file, appended."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

VARIABLE = "DURABLE_SUPERVISOR_TEST_REPORT"


def report(**facts: object) -> None:
    """From a host that a `CrashInjector` runs: hand facts (JSON) to the test, at once.

    They are there whenever this process is killed afterwards.  RuntimeError anywhere else.
    """
    path = os.environ.get(VARIABLE)
    if not path:
        raise RuntimeError("report() is for a function that crash_injector runs")
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, json.dumps(facts).encode() + b"\n")
    finally:
        os.close(fd)


def reported(path: Path) -> dict[str, object]:
    """All that was reported so far; of two facts with one name, the later."""
    return {name: value for record in records(path) for name, value in record.items()}


def records(path: Path) -> list[dict[str, Any]]:
    """The JSON lines of a file that somebody may be appending to: a line without its end is not there yet."""
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines if line.endswith(b"\n")]
