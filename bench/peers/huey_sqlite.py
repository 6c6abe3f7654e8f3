"""huey on SQLite: a task queue; its consumer runs the program in a task."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from . import harness

_FILE = "BENCH_HUEY_FILE"
_POLL = 0.001
_WORKERS = harness.AT_ONCE


def make_queue() -> tuple[Any, Any]:
    """The queue named by the environment, and its one task."""
    from huey import SqliteHuey

    queue = SqliteHuey(filename=os.environ[_FILE])
    return queue, queue.task()(run)


def run(argv: list[str]) -> tuple[int, bytes]:
    """The task, in a thread of the consumer."""
    done = subprocess.run(argv, stdout=subprocess.PIPE, check=False)
    return done.returncode, done.stdout


def consume() -> None:
    queue, _ = make_queue()
    queue.create_consumer(
        workers=_WORKERS,
        periodic=False,
        initial_delay=_POLL,
        max_delay=_POLL,
        backoff=1.0,
        check_worker_health=False,
    ).run()


class Peer(harness.Peer):
    DURABLE = "request; a crash of the consumer loses the task"
    NOTE = f"{_WORKERS} threads; consumer and caller look every millisecond; output comes as the result"
    IDLES = False  # as many as it has threads

    def version(self) -> str:
        return version("huey")

    def open(self, commands: Mapping[tuple[str, ...], int]) -> None:
        os.environ[_FILE] = str(self.directory / "huey.db")
        self._queue, self._task = make_queue()
        consumer = [sys.executable, "-c", "from bench.peers.huey_sqlite import consume; consume()"]
        self._consumer = subprocess.Popen(consumer, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def close(self) -> None:
        self._consumer.kill()
        self._consumer.wait()

    def start(self, argv: Sequence[str]) -> Any:
        return self._task(list(argv))

    def wait(self, job: Any) -> int:
        while (found := job.get()) is None:
            time.sleep(_POLL)
        return int(found[0])
