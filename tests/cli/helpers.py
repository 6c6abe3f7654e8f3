"""Calling the real command, as a person or a script would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import PATIENCE

SOURCE = Path(__file__).resolve().parents[2] / "src"
COMMAND = [sys.executable, "-m", "durable_supervisor.cli"]


def environment(state_dir: Path | None = None, **more: str) -> dict[str, str]:
    """A clean environment: what the developer has exported must not reach the test."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    kept |= {"PYTHONPATH": str(SOURCE), "TERM": "xterm-256color"}
    if state_dir is not None:
        kept["DURABLE_SUPERVISOR_STATE_DIR"] = str(state_dir)
    return kept | more


@dataclass(frozen=True)
class Result:
    """What one call left behind."""

    code: int
    raw: bytes
    stderr: str

    @property
    def stdout(self) -> str:
        return self.raw.decode()

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document on stdout."""
        form = json.loads(self.stdout)
        assert isinstance(form, dict)
        return form

    @property
    def documents(self) -> list[dict[str, Any]]:
        """Newline-delimited JSON on stdout."""
        return [json.loads(row) for row in self.stdout.splitlines()]

    @property
    def error(self) -> dict[str, Any]:
        """The error document on stderr."""
        form = json.loads(self.stderr)["error"]
        assert isinstance(form, dict)
        return form


class Cli:
    """The command on one state directory."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir

    def __call__(self, *words: str | bytes, stdin: bytes = b"", **env: str) -> Result:
        done = subprocess.run(
            [*COMMAND, *words],
            input=stdin,
            capture_output=True,
            env=environment(self.state_dir, **env),
            timeout=PATIENCE,
            check=False,
        )
        return Result(done.returncode, done.stdout, done.stderr.decode())

    def ok(self, *words: str | bytes, stdin: bytes = b"", **env: str) -> Result:
        """A call that must succeed without a word on stderr."""
        result = self(*words, stdin=stdin, **env)
        assert result.code == 0, (result.code, result.stdout, result.stderr)
        assert result.stderr == ""
        return result

    def start(self, *words: str) -> str:
        """Start a program (options, ``--``, argv) and return its run id."""
        run_id = self.ok("start", "--json", *words).document["run_id"]
        assert isinstance(run_id, str)
        return run_id

    def inspect(self, run_id: str) -> dict[str, Any]:
        """The inspect document."""
        return self.ok("inspect", "--json", run_id).document

    def popen(self, *words: str, **options: Any) -> subprocess.Popen[bytes]:
        """The command in the background; the caller ends it."""
        return subprocess.Popen([*COMMAND, *words], env=environment(self.state_dir), **options)


def assert_one_error_line(result: Result, code: str) -> None:
    """Exactly one line on stderr, in the documented form, and no traceback anywhere."""
    assert result.stderr.count("\n") == 1, result.stderr
    assert result.stderr.startswith(f"error: {code}: "), result.stderr
    assert "Traceback" not in result.stderr + result.stdout
