"""A directory with runs of every kind, whose programs write down each execution and each signal."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from durable_supervisor import Command, Limits, Supervisor
from durable_supervisor.model.run import Run
from tests.contract.runs import Marker
from tests.support import eventually

# Catches what can be caught; numbers its lines, so that a copy of its output can be told to be a prefix.
_PROGRAM = """
import os, signal, sys, time
ledger, name, marker, count = sys.argv[1:5]
def note(text):
    with open(ledger, "a") as file:
        file.write(f"{text} {name}\\n")
for signo in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGCONT):
    signal.signal(signo, lambda signo, frame: note("signal"))
note("ran")
for number in range(int(count)):
    print(number, flush=number % 64 == 0)
sys.stdout.flush()
if marker != "-":
    while True:
        time.sleep(60)
"""


class Busy:
    """Requests by id, and the ledger of what their programs really did."""

    def __init__(self, folder: Path, marker: Marker) -> None:
        self.ledger = folder / "ledger"
        self.ledger.touch()
        self._marker = marker

    def command(self, request_id: str) -> Command:
        """``live-…`` stays until it is killed, ``ended-…`` ends, ``missing-…`` cannot be executed."""
        kind = request_id.partition("-")[0]
        if kind == "missing":
            return Command(argv=["/no/such/program"])
        words = [str(self.ledger), request_id, str(self._marker) if kind == "live" else "-", "20000"]
        return Command(argv=[sys.executable, "-I", "-S", "-c", _PROGRAM, *words])

    async def send(self, sup: Supervisor, request_id: str, *, queue: bool = False) -> Run:
        command, limits = self.command(request_id), Limits(timeout=600, grace=0)
        return await sup.start(command, request_id=request_id, limits=limits, queue=queue)

    def notes(self, kind: str) -> Counter[str]:
        """How often each request's program ``ran``, or got a ``signal``."""
        lines = (line.split() for line in self.ledger.read_text().splitlines())
        return Counter(name for noted, name in lines if noted == kind)

    def wait_for(self, count: int) -> None:
        """Until so many programs run."""
        eventually(lambda: len(self.notes("ran")) >= count)
