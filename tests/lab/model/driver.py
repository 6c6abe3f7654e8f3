"""The experiment: seeded random verbs, and seeded random violence, against one state directory.

What step number n does is drawn from (seed, n) alone, out of what is there at that moment: the same seed
makes the same experiment, up to the races that the kernel decides.
"""

from __future__ import annotations

import json
import random
import select
import signal
import socket
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from durable_supervisor.process.identity import Stat, read_stat
from durable_supervisor.supervisor.state.state_dir import StateDir, owner_pid
from durable_supervisor.testing.crash import points
from tests.lab.model import actors
from tests.lab.model.books import Books
from tests.lab.model.herd import HOSTS, Child, Herd

WANTED = {"owner": 1, "session": 2, "client": 1, "observer": 1}  # how many of each there are at most
ARMED = 0.35  # share of hosts that carry an armed failpoint
FULL_STEPS = 20
PAUSE = 0.012  # seconds that a step takes at least
# Followers give up waiting for an owner's word somewhat later; and they may have done so a moment ago.
UNOWNED, STANDING, AGO = 0.7, 12.0, 4.0
# What a caller may be told while owners come and go.  Anything else ends the experiment.
PASSING = frozenset({
    "BUSY", "CAPACITY_EXHAUSTED", "NOT_CONFIRMED", "NOT_RESOLVABLE", "NOT_RUNNING", "NOT_STARTED",
    "OUTCOME_UNKNOWN", "RUN_COLLECTED", "SERVICE_UNAVAILABLE", "SHUTTING_DOWN", "STATE_DIR_IN_USE",
    "STDIN_CLOSED", "SUBMISSION_INDETERMINATE", "SUPERVISOR_CLOSED", "TIMEOUT", "WAIT_TIMEOUT", "WRITER_BUSY",
})  # fmt: skip


@dataclass
class Request:
    """One request id, and all that anybody was told of it."""

    id: str
    kind: str
    form: dict[str, Any]
    run_ids: set[str] = field(default_factory=set)
    admissions: Counter[str] = field(default_factory=Counter)
    stops: int = 0
    signals: set[str] = field(default_factory=set)
    settled: list[dict[str, Any]] = field(default_factory=list)  # views that said how it ended

    @property
    def run_id(self) -> str:
        """Once it was told."""
        return next(iter(self.run_ids))


@dataclass
class Follower:
    """Somebody who reads a run to its end; when he is killed, another goes on at his cursor."""

    name: str
    run: str
    actor: int | None = None  # pid
    done: bool = False
    alone: bool = False  # it came to the end while nobody had owned the directory for long


class Driver:
    """Who is there, what was asked of them, and what they have told."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.seed = seed
        self.folder = folder
        self.state = folder / "state"
        self.state.mkdir(mode=0o700)
        (folder / "followed").mkdir()
        self.herd = Herd(folder)
        self.books = Books(folder / "books")
        self.requests: dict[str, Request] = {}
        self.followers: list[Follower] = []
        self.kills: Counter[str] = Counter()
        self.told: Counter[str] = Counter()
        self.verbs: Counter[str] = Counter()
        self.figures: list[dict[str, Any]] = []
        self.settlings = 0  # how often somebody has settled all
        self.calmed: set[str] = set()  # runs that were ended when all was over
        self.steps = 0
        self.full_until = 0  # until which step nothing new is started: all slots are taken
        self._owned = self._moving = time.monotonic()  # when an owner was last seen, and seen to move
        self._alone = 0.0  # when that had last been too long ago
        self._asked: dict[tuple[int, int], tuple[str, dict[str, Any]]] = {}
        self._buffers: dict[int, bytes] = {}
        self._wake: list[tuple[float, str, Any]] = []
        self._points = sorted(points())

    # The loop.

    @property
    def killed(self) -> int:
        """Of all kinds but programs, whose death is theirs alone."""
        return sum(count for what, count in self.kills.items() if what != "program")

    def step(self) -> random.Random:
        """Begin the next step; what is drawn in it comes from the answer."""
        self.steps += 1
        rng = random.Random(f"{self.seed}:{self.steps}")
        self.people(rng)
        return rng

    def let_pass(self, seconds: float = PAUSE) -> None:
        self.listen(seconds)
        self.look_for_owner()
        self.rouse()

    def people(self, rng: random.Random) -> None:
        """See to it that there is somebody to ask."""
        present = Counter(child.role for child in self.herd.alive())
        lacking = [role for role, most in WANTED.items() if present[role] < most]
        if not present["daemon"] and rng.random() < 0.02:
            lacking = ["daemon"]
        if lacking and rng.random() < (0.3 if self.herd.alive(*HOSTS) else 1.0):
            self.hire(rng.choice(lacking), rng)

    def look_for_owner(self) -> None:
        """Would a follower now wait for one's word?"""
        now, pid = time.monotonic(), owner_pid(StateDir(str(self.state)))
        if now - self._owned > UNOWNED or now - self._moving > STANDING:
            self._alone = now  # or may have been: on a crowded machine it is long since we looked
        stat = None if pid is None else read_stat(pid)
        if stat is not None:
            self._owned = now
            self._moving = self._moving if stat.state == "T" else now

    def hire(self, role: str, rng: random.Random | None = None) -> Child:
        armed = ""
        if rng is not None and role in HOSTS and rng.random() < ARMED:
            action = "kill" if rng.random() < 0.8 else "pause"
            armed = f"{rng.choice(self._points)}={action}@{rng.choice((1, 1, 2, 4))}"
        state, followed = str(self.state), str(self.folder / "followed")
        if role == "daemon":
            words = ["serve", "--json", "--allow-root", "--log-level", "error"]
            child = self.herd.fork(role, lambda end: actors.call(words, state), armed)
        else:
            child = self.herd.fork(role, lambda end: actors.be(role, state, followed, end), armed)
        if role != "daemon":
            self._asked[child.pid, 0] = ("open", {})
        return child

    # Asking and being told.

    def ask(self, child: Child, op: str, **arguments: Any) -> None:
        """Without waiting; a dead one does not mind."""
        if child.end is None:
            return
        child.asked = number = child.asked + 1
        self.verbs[op] += 1
        self._asked[child.pid, number] = (op, arguments)
        try:
            child.end.send(json.dumps({"id": number, "op": op, **arguments}).encode() + b"\n")
        except (BrokenPipeError, ConnectionResetError, BlockingIOError):
            del self._asked[child.pid, number]

    def listen(self, seconds: float) -> None:
        """Take what is said within so many seconds, and see who has died."""
        deadline = time.monotonic() + seconds
        while True:
            speaking = [child for child in self.herd.children.values() if child.end is not None]
            ends = {child.end.fileno(): child for child in speaking if child.end is not None}
            left = max(0.0, deadline - time.monotonic())
            readable = select.select(list(ends), [], [], left)[0]
            for fd in readable:
                self._hear(ends[fd])
            self.bury()
            if time.monotonic() >= deadline:
                return

    def _hear(self, child: Child) -> None:
        assert child.end is not None
        try:
            data = child.end.recv(1 << 20)
        except ConnectionResetError:
            data = b""
        if not data:
            child.end.close()
            child.end = None
            for key in [key for key in self._asked if key[0] == child.pid]:
                del self._asked[key]
            return
        *lines, self._buffers[child.pid] = (self._buffers.get(child.pid, b"") + data).split(b"\n")
        for line in lines:
            self._take(child, json.loads(line))

    def _take(self, child: Child, document: dict[str, Any]) -> None:
        op, arguments = self._asked.pop((child.pid, document["id"]))
        if op == "open":
            child.answered = True
        error = document.get("error")
        if error is not None:
            self.told[error["code"]] += 1
            if op == "follow":
                self._let_go(arguments["name"], error["code"])
            if error["code"] == "CAPACITY_EXHAUSTED":
                self.full_until = self.steps + FULL_STEPS
            expected = op == "conflict" and error["code"] == "IDEMPOTENCY_CONFLICT"
            assert expected or error["code"] in PASSING, (child.role, op, arguments, error)
        else:
            self._learn(op, arguments, document["ok"])

    def _let_go(self, name: str, code: str) -> None:
        """A follower was not served to the end: another goes on, unless nothing is left to read."""
        for follower in self.followers:
            if follower.name == name:
                follower.actor, follower.done = None, code == "RUN_COLLECTED"

    @property
    def waiting_for(self) -> list[tuple[str, dict[str, Any]]]:
        """What was asked of the living, and is not answered yet."""
        return list(self._asked.values())

    def _learn(self, op: str, arguments: dict[str, Any], answer: Any) -> None:
        assert op != "conflict", f"another request was taken for this one: {arguments} {answer}"
        if op == "start":
            request = self.requests[arguments["request_id"]]
            request.run_ids.add(answer["run_id"])
            request.admissions[answer["admission"]] += 1
        elif op == "follow":
            for follower in self.followers:
                if follower.name == arguments["name"]:
                    follower.done, follower.alone = True, time.monotonic() - self._alone < AGO
        elif op == "settle":
            self.calmed.update(answer)
            self.settlings += 1
        elif op == "figures":
            self.figures.append({"role": "", **answer})
        listed = [view for view in answer if not view["imported"]] if op == "list" else []
        views = listed if op == "list" else [answer] if op in ("inspect", "wait", "resolve") else []
        for view in views:
            request = self.requests[view["request_id"]]
            request.run_ids.add(view["run_id"])
            if view["state"] in ("finished", "unknown"):
                request.settled.append(view)

    def cursor(self, follower: Follower) -> int:
        """Where its book ends; a line that was cut by a kill does not count."""
        try:
            text = (self.folder / "followed" / follower.name).read_bytes()
        except FileNotFoundError:
            return 0
        whole = text[: text.rfind(b"\n") + 1].splitlines()
        return int(json.loads(whole[-1])[0]) if whole else 0

    def dismiss(self, child: Child) -> None:
        """Ask it to leave."""
        child.told_to_leave = True
        if child.role == "daemon":
            seen = read_stat(child.pid)
            if seen is not None:
                self.herd.strike(child.role, seen, signal.SIGTERM)
        elif child.end is not None:
            child.end.shutdown(socket.SHUT_WR)

    def bury(self) -> None:
        """Who has ended, and whether he was to."""
        for child in self.herd.reap():
            assert child.status is not None
            by_signal = child.status & 0x7F
            if by_signal == signal.SIGKILL:
                self.kills[child.role] += (child.pid, child.ticks) not in self.herd.killed
            else:
                code = child.status >> 8
                may = child.role == "cli" or child.status == 0 or (child.role == "daemon" and code in (1, 5))
                asked = child.told_to_leave and by_signal == signal.SIGTERM  # before it was up
                ending = f"{child.role} ended with {child.status:#x}: {errors_of(child)}"
                assert asked or (may and by_signal == 0), ending
            assert "Traceback" not in errors_of(child), f"{child.role}: {errors_of(child)}"
            for follower in self.followers:
                if follower.actor == child.pid:
                    follower.actor = None

    def is_up(self, stat: Stat, rng: random.Random) -> bool:
        """Has it come so far that it answers?  Most shall, or a busy machine would see none that does."""
        child = self.herd.children.get(stat.pid)
        return child is None or child.role not in actors.OPENING or child.answered or rng.random() < 0.1

    def rouse(self) -> None:
        """Let those go on whose sleep is over."""
        now = time.monotonic()
        for item in [item for item in self._wake if item[0] <= now]:
            self._wake.remove(item)
            self.herd.strike(item[1], item[2], signal.SIGCONT)

    def nap(self, what: str, stat: Any, seconds: float) -> None:
        if self.herd.strike(what, stat, signal.SIGSTOP):
            self._wake.append((time.monotonic() + seconds, what, stat))


def errors_of(child: Child) -> str:
    try:
        return child.errors.read_text(errors="replace")[-4000:]
    except FileNotFoundError:
        return ""
