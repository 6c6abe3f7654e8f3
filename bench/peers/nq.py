"""nq: a queue of commands made of files.  Each job has a queue of its own: a queue runs one at a time."""

from __future__ import annotations

import itertools
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from . import harness


class Peer(harness.Peer):
    DURABLE = "exit, in an unsynced file"
    NOTE = "the program writes its file itself: nothing is captured"
    STREAMS = False
    _numbers = itertools.count()

    def version(self) -> str:
        done = subprocess.run(
            ["dpkg-query", "-W", "-f=${Version}", "nq"], capture_output=True, text=True, check=False
        )
        return done.stdout

    def start(self, argv: Sequence[str]) -> Path:
        queue = self.directory / f"queue-{next(self._numbers)}"
        env = {**os.environ, "NQDIR": str(queue)}
        done = subprocess.run(["nq", *argv], env=env, stdout=subprocess.PIPE, text=True, check=True)
        return queue / done.stdout.strip()

    def wait(self, job: Path) -> int:
        env = {**os.environ, "NQDIR": str(job.parent)}
        while True:
            subprocess.run(["nq", "-w", job.name], env=env, check=False)
            _, marked, rest = job.read_text().rpartition("[exited with status ")
            if marked and "]" in rest:
                return int(rest.partition(".")[0])
            time.sleep(0.0005)  # asked too early: the job had not taken its lock yet
