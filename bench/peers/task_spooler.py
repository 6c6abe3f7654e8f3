"""task-spooler: a queue of commands with a server in memory."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

from . import harness


class Peer(harness.Peer):
    NOTE = "output goes straight into a file"

    def version(self) -> str:
        found = subprocess.run(["tsp", "-V"], capture_output=True, text=True, check=False).stdout
        return next((word for word in found.split() if word.startswith("v")), "").lstrip("v")

    def open(self, commands: Mapping[tuple[str, ...], int]) -> None:
        out = self.directory / "out"
        out.mkdir()
        slots = sum(commands.values())
        self._env = {
            **os.environ, "TS_SOCKET": str(self.directory / "socket"), "TMPDIR": str(out),
            "TS_SLOTS": str(slots), "TS_MAXFINISHED": "100", "TS_MAXCONN": "500",
        }  # fmt: skip

    def close(self) -> None:
        subprocess.run(["tsp", "-K"], env=self._env, check=False)

    def start(self, argv: Sequence[str]) -> str:
        done = subprocess.run(["tsp", *argv], env=self._env, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def wait(self, job: str) -> int:
        return subprocess.run(["tsp", "-w", job], env=self._env, check=False).returncode
