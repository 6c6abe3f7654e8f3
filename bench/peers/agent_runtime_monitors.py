"""agent-runtime-py: its monitors run a shell command detached, with observations in SQLite."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from . import harness

_POLL = 0.005
_SESSION = "bench-session"


class Peer(harness.Peer):
    DURABLE = "request, output and exit in SQLite"
    NOTE = "each monitor is a Python process; output beyond 1 MiB stops it: no stream of 100 MB"
    SLOW = True
    STREAMS = False

    def version(self) -> str:
        return version("agent-runtime-py")

    def open(self, commands: Mapping[tuple[str, ...], int]) -> None:
        import psutil
        from agent_runtime.monitors import Monitors

        os.environ["AGENT_RUNTIME_DIRECTORY"] = str(self.directory / "runtime")
        os.environ["AGENT_SESSION_PROVIDER"] = "claude_code"
        os.environ["AGENT_SESSION_ID"] = _SESSION
        self._monitors = Monitors()
        # We stand for the native agent and its delivery bridge, whose liveness is checked.
        me = {"pid": os.getpid(), "process_created_at": psutil.Process().create_time()}
        self._monitors.registry.update(
            "claude_code", _SESSION, cwd=str(self.directory), permission_mode="default", **me,
            bridge={**me, "native_pid": os.getpid()},
        )  # fmt: skip

    def start(self, argv: Sequence[str]) -> str:
        command = "exec " + shlex.join(argv)
        found: Mapping[str, Any] = self._monitors.start(command, description="bench", persistent=False)
        return str(found["monitor_id"])

    def wait(self, job: str) -> int:
        while (found := self._monitors.get(job))["status"] in ("starting", "running"):
            time.sleep(_POLL)
        return int(found["exit_code"])
