"""Why a program was never started, as the command line and the calls say it."""

from __future__ import annotations

import pytest

from durable_supervisor.model.start_failure import start_failure_words


@pytest.mark.parametrize(
    ("reason", "detail", "words"),
    [
        (None, {}, "no reason recorded"),
        ("host_gone", {}, "host_gone"),
        ("ENOENT", {}, "ENOENT (No such file or directory)"),
        (
            "ENOENT",
            {"error": "ENOENT", "step": "cwd", "path": "/srv"},
            "ENOENT (No such file or directory): directory /srv",
        ),
        (
            "ENOENT",
            {"error": "ENOENT", "step": "exec", "path": "/a"},
            "ENOENT (the interpreter that it names is missing): /a",
        ),
        (
            "EACCES",
            {"error": "EACCES", "step": "exec", "path": "/a"},
            "EACCES (it, or the interpreter that it names, may not be executed): /a",
        ),
        (
            "EACCES",
            {"error": "EACCES", "step": "resolve", "path": "/a"},
            "EACCES (Permission denied): /a",
        ),
        ("exec_failed", {"error": "E2BIG"}, "exec_failed: E2BIG (Argument list too long)"),
        ("ENOSUCHERROR", {}, "ENOSUCHERROR"),
    ],
)
def test_words(reason: str | None, detail: dict[str, object], words: str) -> None:
    assert start_failure_words(reason, detail) == words
