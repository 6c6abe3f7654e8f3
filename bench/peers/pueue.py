"""Pueue: a task queue with a daemon, for people at a shell."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence

from . import harness


class Peer(harness.Peer):
    DURABLE = "request and exit, in an unsynced file"
    NOTE = "through its command line: a process for each call"

    def version(self) -> str:
        return self._call("--version").split()[-1]

    def open(self, commands: Mapping[tuple[str, ...], int]) -> None:
        home = str(self.directory)
        self._env = {
            **os.environ, "HOME": home, "XDG_CONFIG_HOME": home, "XDG_DATA_HOME": home,
            "XDG_RUNTIME_DIR": home,
        }  # fmt: skip
        self._daemon = subprocess.Popen(
            ["pueued"], env=self._env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        end = time.monotonic() + 10
        while subprocess.run(["pueue", "status"], env=self._env, capture_output=True, check=False).returncode:
            if time.monotonic() > end:
                raise RuntimeError("pueued does not answer")
            time.sleep(0.05)
        self._call("parallel", str(sum(commands.values())))

    def close(self) -> None:
        self._daemon.kill()
        self._daemon.wait()

    def start(self, argv: Sequence[str]) -> str:
        return self._call("add", "--print-task-id", "--escape", "--", *argv).strip()

    def wait(self, job: str) -> int:
        self._call("wait", "--quiet", job)
        status = json.loads(self._call("status", "--json"))["tasks"][job]["status"]
        result = status["Done"]["result"]
        return 0 if result == "Success" else int(result["Failed"])

    def _call(self, *arguments: str) -> str:
        done = subprocess.run(
            ["pueue", *arguments], env=self._env, capture_output=True, text=True, check=True
        )
        return done.stdout
