"""Every process of one experiment: all of them descend from the driver, which reaps whatever is orphaned.

The driver is a child subreaper, so nothing that any of them leaves behind, daemon or not, gets away from it.
A process is struck only after its identity (pid and start ticks) was proven on a pidfd.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from durable_supervisor.process import failpoints, libc
from durable_supervisor.process.identity import Stat, read_stat
from durable_supervisor.process.signals import signal_ticks
from durable_supervisor.process.tree import descendants

Identity = tuple[int, int]  # pid, start ticks
HOSTS = ("owner", "session", "daemon")
_OF_WORKERS = ("worker.", "zygote.", "program.", "waiting.", "log.")  # failpoints that they and zygotes meet


@dataclass
class Child:
    """A process that the driver forked."""

    role: str
    pid: int
    ticks: int
    errors: Path
    end: socket.socket | None = None
    status: int | None = None  # as waitpid(2) gave it, once it is reaped
    told_to_leave: bool = False
    answered: bool = False  # it has opened, or was refused
    armed: str = ""  # with which failpoint
    asked: int = 0  # how many questions


class Herd:
    """Forks, finds, strikes and reaps."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.children: dict[int, Child] = {}
        self.killed: dict[Identity, str] = {}  # by us, and what it was
        self.asleep: set[Identity] = set()
        self.seconds: defaultdict[str, float] = defaultdict(
            float
        )  # of processor time, by what the reaped were
        self.witness = folder / "witness"
        libc.set_child_subreaper()

    def fork(self, role: str, work: Callable[[socket.socket], None], armed: str = "") -> Child:
        """A new process that does ``work`` with its end of a socket pair, and leaves."""
        ours, theirs = socket.socketpair()
        errors = self._folder / f"{len(self.children):05d}-{role}.err"
        pid = os.fork()
        if pid == 0:
            _become(theirs, errors, f"{armed}>{self.witness}" if armed else "", work)
        theirs.close()
        ours.setblocking(False)
        stat = read_stat(pid)
        assert stat is not None, "nobody but us reaps it"
        child = Child(role, pid, stat.start_ticks, errors, ours, armed=armed)
        self.children[pid] = child
        return child

    def alive(self, *roles: str) -> list[Child]:
        left = [one for one in self.children.values() if one.status is None]
        return [one for one in left if not roles or one.role in roles]

    def reap(self) -> list[Child]:
        """Our children that have ended since; orphans are reaped silently."""
        ended = []
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            child = self.children.get(pid)
            self.seconds[child.role if child else "orphan"] += usage.ru_utime + usage.ru_stime
            if child is not None and child.status is None:
                child.status = status
                ended.append(child)
        return ended

    def processes(self) -> Iterator[tuple[str, Stat]]:
        """Everything alive beneath us, and what it is: a role, or one of the product's own processes.

        ``zygote``, ``worker``, ``spare`` (a worker without a run), ``program``.
        """
        for stat in descendants(os.getpid()):
            child = self.children.get(stat.pid)
            if child is not None and child.ticks == stat.start_ticks:
                yield child.role, stat
            else:
                yield _what(stat.pid), stat

    def strike(self, what: str, stat: Stat, signo: int) -> bool:
        """Signal exactly this process; True if it was reached."""
        identity = (stat.pid, stat.start_ticks)
        if not signal_ticks(*identity, signo):
            return False
        if signo == signal.SIGKILL:
            self.killed[identity] = what
            self.asleep.discard(identity)
        elif signo == signal.SIGSTOP:
            self.asleep.add(identity)
        elif signo == signal.SIGCONT:
            self.asleep.discard(identity)
        return True

    def wake_all(self) -> None:
        """Let everything that stands still go on: also what stopped itself at a failpoint."""
        for what, stat in self.processes():
            if stat.state == "T" or (stat.pid, stat.start_ticks) in self.asleep:
                self.strike(what, stat, signal.SIGCONT)
        self.asleep.clear()

    def deaths_at_points(self) -> list[str]:
        """The points where somebody died or stopped by himself."""
        try:
            return self.witness.read_text().split()
        except FileNotFoundError:
            return []

    def end_all(self) -> None:
        """SIGKILL everything beneath us, until there is nothing."""
        while left := descendants(os.getpid()):
            for stat in left:
                signal_ticks(stat.pid, stat.start_ticks, signal.SIGKILL)
            self.reap()


def _what(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return "program"
    if b"-I" not in words or b"-S" not in words:
        return "program"
    if any(word.endswith(b"/worker/__main__.py") for word in words) or _holds_log(pid):
        return "worker"
    if not any(word.endswith(b"/worker/zygote.py") for word in words):
        return "program"
    return "spare" if _is_worker(pid) else "zygote"


def _is_worker(pid: int) -> bool:
    """One without a run, then: it waits for its first, or for its next."""
    try:
        return Path(f"/proc/{pid}/comm").read_bytes() == b"dsup-worker\n"
    except OSError:
        return False


def _holds_log(pid: int) -> bool:
    try:
        return any(
            "/runs/" in os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")
        )
    except OSError:
        return False


def _become(end: socket.socket, errors: Path, armed: str, work: Callable[[socket.socket], None]) -> NoReturn:
    """In the child: its own descriptors, its own failpoints, its work, and out."""
    code = 1
    try:
        fd = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.dup2(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC), 0)
        os.dup2(fd, 1)
        os.dup2(fd, 2)
        number = os.dup2(end.fileno(), 3, inheritable=False)
        end.detach()
        os.closerange(4, 4096)
        if armed:  # as the variable would have armed it at the start of an interpreter
            if armed.startswith(
                _OF_WORKERS
            ):  # any other is met here alone: workers without one are used again
                os.environ[failpoints.VARIABLE] = armed
            points, _, failpoints._witness = armed.partition(">")
            failpoints._armed.update(failpoints._parse(points))
        work(socket.socket(fileno=number))
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
