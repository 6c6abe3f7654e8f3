"""What the runs of a state directory left alive: found through their logs, ended by proven identity.

It needs no supervisor and no journal, so that it works whatever a test has killed or broken.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass

from ..model.identity import ProcessIdentity
from ..process import tree
from ..process.identity import Liveness, Stat, probe, read_stat
from ..process.locks import LockState, probe_lock
from ..process.signals import signal_process
from ..runlog.evidence import read_evidence
from ..runlog.paths import RunPaths, list_attempts, list_shards

_ROUNDS = 100
_PAUSE = 0.01
_MOMENT = 0.5  # seconds
_ID_VARIABLE = "DURABLE_SUPERVISOR_RUN_ID"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at a run, as its log tells.

    ``ending``: it is being stopped, or has its receipt: its worker will be gone without anybody's help.
    """

    run_id: str
    number: int
    log: str
    worker: ProcessIdentity | None
    program: ProcessIdentity | None
    ending: bool

    @property
    def has_worker(self) -> bool:
        """Its log's lock is the proof that a worker lives, or will in a moment."""
        return probe_lock(self.log) is LockState.HELD


def attempts(state_dir: str | os.PathLike[str]) -> Iterator[Attempt]:
    """Every attempt that has a log."""
    runs_dir = os.path.join(os.fspath(state_dir), "runs")
    for shard in list_shards(runs_dir):
        for run_id, numbers in list_attempts(runs_dir, shard).items():
            for number in numbers:
                yield _attempt(RunPaths(runs_dir, shard, run_id), number)


def leaked(state_dir: str | os.PathLike[str], patience: float) -> dict[str, str]:
    """Run id -> what of it is alive.

    What is ending is given ``patience`` seconds for it; whatever else lives, a moment to begin with
    its end, such as a run of scope lifetime whose host was killed just now.
    """
    began = time.monotonic()
    while True:
        found = _alive(state_dir)
        bound = patience if all(one.ending for one, _ in found.values()) else min(patience, _MOMENT)
        if not found or time.monotonic() - began >= bound:
            return {run_id: what for run_id, (_, what) in found.items()}
        time.sleep(_PAUSE)


def until_gone(state_dir: str | os.PathLike[str], patience: float) -> bool:
    """Is nothing left alive, at the latest after ``patience`` seconds?"""
    deadline = time.monotonic() + patience
    while _alive(state_dir):
        if time.monotonic() > deadline:
            return False
        time.sleep(_PAUSE)
    return True


def end_all(state_dir: str | os.PathLike[str]) -> list[int]:
    """SIGKILL the workers and programs that the logs name, and all below them; the pids reached.

    Also what an orphaned program had started, as long as it carries the run's id in its environment.
    """
    reached: list[int] = []
    run_ids = set()
    for one in attempts(state_dir):
        run_ids.add(one.run_id)
        # A stopped worker starts no ladder and stays the parent of all orphans until the tree is gone.
        if one.worker is not None and signal_process(one.worker, signal.SIGSTOP):
            reached += kill_below(one.worker.pid) + kill(one.worker)
        if one.program is not None and probe(one.program) is Liveness.ALIVE:
            reached += kill_below(one.program.pid) + kill(one.program)
    for _ in range(_ROUNDS):
        orphans = list(_marked(run_ids))
        if not orphans:
            break
        reached += tree.signal_all([stat for stat, _ in orphans], signal.SIGKILL)
        time.sleep(_PAUSE)
    return reached


def kill(identity: ProcessIdentity) -> list[int]:
    """SIGKILL this very process; its pid, or nothing where it cannot be proven."""
    return [identity.pid] if signal_process(identity, signal.SIGKILL) else []


def kill_below(root: int) -> list[int]:
    """SIGKILL every descendant of ``root``, also those forked meanwhile; the pids reached."""
    reached: list[int] = []
    for _ in range(_ROUNDS):
        alive = tree.descendants(root)
        if not alive:
            break
        reached += tree.signal_all(alive, signal.SIGKILL)
    return sorted(set(reached))


def owner(state_dir: str | os.PathLike[str]) -> ProcessIdentity | None:
    """Who signed the directory as its owner, if that process is alive."""
    try:
        with open(os.path.join(os.fspath(state_dir), "supervisor.owner"), "rb") as file:
            identity = _identity(json.loads(file.read()))
    except (OSError, ValueError):
        return None
    return identity if identity is not None and probe(identity) is Liveness.ALIVE else None


def _alive(state_dir: str | os.PathLike[str]) -> dict[str, tuple[Attempt, str]]:
    found: dict[str, tuple[Attempt, str]] = {}
    newest: dict[str, Attempt] = {}
    for one in attempts(state_dir):
        newest[one.run_id] = one
        if one.has_worker:
            found[one.run_id] = one, f"its worker{_pid(one.worker)}"
        elif one.program is not None and probe(one.program) is Liveness.ALIVE:
            found[one.run_id] = one, f"its program{_pid(one.program)}, without a worker"
    for stat, run_id in _marked(set(newest) - set(found)):
        found[run_id] = newest[run_id], f"a process that it started (pid {stat.pid})"
    return found


def _marked(run_ids: set[str]) -> Iterator[tuple[Stat, str]]:
    """Living processes whose environment, as they were started with, names one of these runs."""
    marks = {f"{_ID_VARIABLE}={run_id}".encode(): run_id for run_id in run_ids}
    for name in os.listdir("/proc") if marks else []:
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            stat = read_stat(int(name))  # before the environment: a pid reused in between fails the signal
            with open(f"/proc/{name}/environ", "rb") as file:
                found = marks.keys() & set(file.read().split(b"\0"))
        except OSError:
            continue
        if found and stat is not None and not stat.dead:
            yield stat, marks[found.pop()]


def _attempt(paths: RunPaths, number: int) -> Attempt:
    evidence = read_evidence(paths, number)
    return Attempt(
        paths.run_id,
        number,
        paths.log(number),
        _identity(evidence.worker),
        _identity(evidence.program),
        any((evidence.receipt, evidence.terminal, evidence.stopping)),
    )


def _identity(form: object) -> ProcessIdentity | None:
    try:
        return ProcessIdentity.from_dict(form) if isinstance(form, dict) else None
    except ValueError:
        return None


def _pid(identity: ProcessIdentity | None) -> str:
    return "" if identity is None else f" (pid {identity.pid})"
