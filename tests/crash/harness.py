"""Drive a host process that may die at any point, and programs that tell by themselves whether they ran."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from durable_supervisor.process.failpoints import VARIABLE
from durable_supervisor.process.identity import read_stat
from durable_supervisor.process.locks import LockState, probe_lock
from durable_supervisor.process.signals import signal_ticks
from durable_supervisor.process.tree import descendants
from tests.stuck import TELLS_ITS_STACKS, ask_for_stacks
from tests.support import PATIENCE, eventually, is_next_log

ROOT = Path(__file__).resolve().parents[2]
HOST = Path(__file__).with_name("host.py")


class HostDied(Exception):
    """The host went away before it answered."""


class Refused(Exception):
    """The supervisor's typed error, as the host told it."""

    def __init__(self, document: dict[str, Any]) -> None:
        super().__init__(f"{document['code']}: {document['message']}")
        self.code = document["code"]
        self.document = document


class Host:
    """One host process.

    ``failpoints``: as in `process.failpoints`, for it, its zygote and its workers.
    ``mode``: ``exec`` or ``zygote`` for how its workers come to be, ``one`` for a single slot,
    or ``recover``.
    """

    def __init__(self, state_dir: Path, failpoints: str = "", *, mode: str = "") -> None:
        env = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        env |= {"PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        if failpoints:
            env[VARIABLE] = failpoints
        self._errors = state_dir.parent / f"host-{time.monotonic_ns()}.err"
        with open(self._errors, "wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, *TELLS_ITS_STACKS, str(HOST), str(state_dir), mode],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=env,
            )
        self._answers: dict[int, dict[str, Any]] = {}
        self._buffer = b""
        self._count = 0

    @property
    def pid(self) -> int:
        return self.process.pid

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()

    def opened(self) -> Any:
        """Return once it owns the directory.  Raises `Refused` and `HostDied`."""
        return self.answer(0)

    def tell(self, op: str, **arguments: Any) -> int:
        """Ask without waiting; `answer` takes the number.  A dead host does not mind."""
        self._count += 1
        line = json.dumps({"id": self._count, "op": op, **arguments}).encode() + b"\n"
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(line)
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        return self._count

    def answer(self, number: int, timeout: float = PATIENCE) -> Any:
        """The answer to request ``number``.  Raises `Refused`, and `HostDied` when none will come."""
        deadline = time.monotonic() + timeout
        assert self.process.stdout is not None
        while number not in self._answers:
            fd = self.process.stdout.fileno()
            if not select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise AssertionError(f"the host did not answer within {timeout} s; {self.stacks()}")
            data = os.read(fd, 1 << 16)
            if not data:
                raise HostDied(self.errors())
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            for document in map(json.loads, lines):
                self._answers[document["id"]] = document
        found = self._answers[number]
        if "error" in found:
            raise Refused(found["error"])
        return found["ok"]

    def ask(self, op: str, **arguments: Any) -> Any:
        return self.answer(self.tell(op, **arguments))

    def start(self, argv: list[str], request_id: str = "r-1", **options: Any) -> str:
        """Start a program and return its run id."""
        return str(self.ask("start", argv=argv, request_id=request_id, **options)["run_id"])

    def died(self) -> None:
        """Return once a failpoint has killed it; nothing else may end it."""
        try:
            code = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the failpoint was not reached; {self.stacks()}") from None
        assert code == -signal.SIGKILL, (code, self.errors())

    def kill(self) -> None:
        """kill -9, and reap.  Idempotent."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            try:
                stream.close()
            except BrokenPipeError:
                pass

    def leave(self) -> None:
        """Let it close its supervisor and end by itself."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            code = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the host does not end; {self.stacks()}") from None
        assert code == 0, self.errors()
        self.kill()

    def errors(self) -> str:
        return self._errors.read_text(errors="replace")[-4000:]

    def stacks(self) -> str:
        """Where it hangs, which ends it."""
        known = ask_for_stacks(self.process)
        return f"{known}\n{self.errors()}"


class Ledger:
    """What the programs themselves wrote down: outside the product, appended, never rewritten.

    Each execution writes ``begin <request> <pid>`` first, and ``end <request> <code>`` last.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "ledger"
        self.gate = folder / "go"

    def program(self, request_id: str, body: str = "", code: int = 5, *, first: str = "") -> list[str]:
        """An argv that runs ``body`` between its two entries.  ``$2`` is the ledger, ``$3`` the gate file.

        ``first`` is what must be so before anybody can see that it has begun.
        """
        script = f'{first}\necho "begin $1 $$" >> "$2"; {body}\necho "end $1 {code}" >> "$2"; exit {code}'
        return ["sh", "-c", script, "sh", request_id, str(self.path), str(self.gate)]

    def waiting(self, request_id: str, code: int = 5) -> list[str]:
        """One that goes on until `open_gate` (or for a minute)."""
        body = 'echo ready; n=0; while [ ! -e "$3" ] && [ $n -lt 1200 ]; do n=$((n+1)); sleep 0.05; done'
        return self.program(request_id, body, code)

    def open_gate(self) -> None:
        self.gate.touch()

    def lines(self) -> list[list[str]]:
        try:
            return [line.split() for line in self.path.read_text().splitlines()]
        except FileNotFoundError:
            return []

    def begun(self, request_id: str) -> int:
        """How often the program was executed."""
        return sum(line[:2] == ["begin", request_id] for line in self.lines())

    def ended(self, request_id: str) -> int | None:
        """The exit code that it was about to end with, if it came so far."""
        codes = [int(line[2]) for line in self.lines() if line[:2] == ["end", request_id]]
        assert len(codes) <= 1
        return codes[0] if codes else None


QUICK = "echo out; echo err >&2"
LEFTOVER = "sleep 3131 & sleep 3131 &"
DEAF = "trap '' TERM HUP INT"
STUBBORN = "echo ready; n=0; while [ $n -lt 600 ]; do n=$((n+1)); sleep 0.1; done"
NOISY = "head -c 400000 /dev/zero | tr '\\0' x; head -c 30000 /dev/zero | tr '\\0' y >&2"


def of_runs(state_dir: Path) -> list[tuple[int, int]]:
    """``(pid, start ticks)`` of the living processes of all runs: workers, programs and what they left.

    Known by what they hold and inherit: a file under ``runs``, a parent that does, or the
    variable that every program gets.
    """
    runs = f"{state_dir}/runs/"
    marks = {f"DURABLE_SUPERVISOR_RUN_ID={run_id}".encode() for run_id in run_ids(state_dir)}
    found: dict[int, int] = {}
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
        try:
            if pid == os.getpid() or not (_holds(pid, runs) or _inherits(pid, marks)):
                continue
        except OSError:
            continue
        for stat in (read_stat(pid), *descendants(pid)):
            if stat is not None and not stat.dead:
                found[stat.pid] = stat.start_ticks
    return list(found.items())


def _holds(pid: int, prefix: str) -> bool:
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            held = os.readlink(f"/proc/{pid}/fd/{fd}").startswith(prefix)
            if held and not is_next_log(fd, pid):
                return True
        except FileNotFoundError:
            continue
    return False


def _inherits(pid: int, marks: set[bytes]) -> bool:
    with open(f"/proc/{pid}/environ", "rb") as file:
        return not marks.isdisjoint(file.read().split(b"\0"))


def run_ids(state_dir: Path) -> set[str]:
    return {path.name.partition(".")[0] for path in (state_dir / "runs").glob("*/*.log")}


def logs(state_dir: Path) -> list[Path]:
    return sorted((state_dir / "runs").glob("*/*.log"))


def end_all(state_dir: Path) -> None:
    """Kill what the runs of this state directory left, each proven to be theirs."""
    for _ in range(50):
        left = of_runs(state_dir)
        if not left:
            return
        for pid, ticks in left:
            signal_ticks(pid, ticks, signal.SIGKILL)
        time.sleep(0.01)


def assert_nothing_left(state_dir: Path) -> None:
    """No process of any run, no held lock."""
    eventually(lambda: not of_runs(state_dir), message="something still runs")
    for path in logs(state_dir):
        eventually(lambda path=path: probe_lock(str(path)) is not LockState.HELD)  # type: ignore[misc]
