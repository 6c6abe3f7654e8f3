"""The service's log, on real descriptors."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from durable_supervisor.server.daemon import logs
from durable_supervisor.supervisor.loop.logs import logger


@contextmanager
def logging_to(descriptor: int, level: str = "info", form: str = "json") -> Iterator[logs.ServiceLog]:
    """A service's log, and afterwards the test's logging as it was."""
    root, ours = logging.getLogger(), logging.getLogger("durable_supervisor")
    levels = root.level, ours.level
    log = logs.ServiceLog(level, form, descriptor)
    log.start()
    try:
        yield log
    finally:
        log.stop()
        root.setLevel(levels[0])
        ours.setLevel(levels[1])


def written(level: str, form: str, say: Any) -> str:
    read, write = os.pipe()
    with logging_to(write, level, form):
        say()
    os.close(write)
    with os.fdopen(read) as file:
        return file.read()


def test_one_object_a_line_of_ours_and_of_libraries() -> None:
    def say() -> None:
        logger().info("ready", pid=7, socket="/a\nb")
        logger().debug("not at this level")
        logging.getLogger("somelib").warning(
            "trouble with %s", "it\nfuture: <Task exception=KeyError('secret')>"
        )
        logging.getLogger("somelib").info("chatter")

    first, second = [json.loads(line) for line in written("info", "json", say).splitlines()]
    assert list(first)[:3] == ["time", "level", "event"]
    assert first.pop("time").endswith("Z")
    assert first == {"level": "info", "event": "ready", "pid": 7, "socket": "/a\nb"}
    assert second["event"] == "trouble with it"
    assert second["level"] == "warning"


def test_text_is_one_line_too() -> None:
    text = written("debug", "text", lambda: logger().debug("request", route="/v1/start", odd="a\nb\x1b[1m"))
    assert text.count("\n") == 1
    assert "request" in text
    assert "route" in text
    assert "\x1b" not in text


def test_an_exception_is_told_without_its_text() -> None:
    def say() -> None:
        try:
            raise KeyError("hunter2-the-secret")
        except KeyError:
            logging.getLogger("somelib").exception("failed")

    text = written("info", "json", say)
    assert "hunter2" not in text
    entry = json.loads(text)
    assert entry["error"] == "KeyError"
    assert "test_logs.py" in entry["where"][-1]


def test_what_looks_like_a_credential_is_not_logged() -> None:
    body = "Zq7Zq7wE3wE3rT5rT5yU8yU8iO2iO2pA4pA4"

    def say() -> None:
        logger().info("trouble", path=f"/x/ghp_{body}", more=[f"https://a:{body}@b"])
        logging.getLogger("somelib").warning("with Bearer %s", body)

    first, second = [json.loads(line) for line in written("info", "json", say).splitlines()]
    assert (first["path"], first["more"]) == ("/x/ghp_[redacted]", ["https://a:[redacted]@b"])
    assert second["event"] == "with Bearer [redacted]"


def test_a_reader_that_does_not_read_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MAX_WAITING", 10)
    read, write = os.pipe()
    with logging_to(write):
        for number in range(2_000):  # far more than pipe and queue hold
            logger().info("flood", number=number, filler="x" * 100)
        kept = dropped = 0
        with os.fdopen(read) as file:
            while kept + dropped < 2_000:
                entry = json.loads(file.readline())
                kept += entry["event"] == "flood"
                dropped += entry.get("count", 0)
    os.close(write)
    assert (kept + dropped, dropped > 0) == (2_000, True), "what is not there is counted"


def test_a_closed_stderr_is_no_end() -> None:
    read, write = os.pipe()
    os.close(read)
    with logging_to(write):
        logger().info("nobody hears it")
    os.close(write)
