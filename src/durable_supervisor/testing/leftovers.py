"""What the runs of a state directory left alive: found through their logs, ended by proven identity.

It needs no supervisor and no journal, so that it works whatever a test has killed or broken.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass

from ..model.identity import ProcessIdentity
from ..process import tree
from ..process.caller import RUN_ID_VARIABLE
from ..process.identity import Liveness, Stat, probe, read_stat
from ..process.locks import LockState, probe_lock
from ..process.signals import signal_process
from ..runlog.evidence import read_evidence
from ..runlog.paths import RunPaths, list_attempts, list_shards
from ..sandbox.resources import cgroups, run_cgroups

_ROUNDS = 100
_PAUSE = 0.01
_MOMENT = 5.0  # seconds; of a machine whose processors are taken
_SHOWN = 200  # characters of a command


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at a run, as its log tells.

    ``ending``: it is being stopped, or has its receipt: its worker will be gone without anybody's help.
    ``command``: as a shell would read it, secrets redacted; empty where the log does not tell.
    """

    run_id: str
    number: int
    log: str
    directory_id: str | None
    worker: ProcessIdentity | None
    program: ProcessIdentity | None
    ending: bool
    command: str

    @property
    def has_worker(self) -> bool:
        """Its log's lock is the proof that a worker lives, or will in a moment."""
        return probe_lock(self.log) is LockState.HELD


def attempts(state_dir: str | os.PathLike[str]) -> Iterator[Attempt]:
    """Every attempt that has a log: none where a test has put something else in the place of ``runs``."""
    runs_dir = os.path.join(os.fspath(state_dir), "runs")
    for shard in list_shards(runs_dir) if os.path.isdir(runs_dir) else ():
        for run_id, numbers in list_attempts(runs_dir, shard).items():
            for number in numbers:
                yield _attempt(RunPaths(runs_dir, shard, run_id), number)


def leaked(state_dir: str | os.PathLike[str], patience: float) -> dict[str, str]:
    """Run id -> what of it is alive, and the command that it is of.

    What is ending is given ``patience`` seconds for it; whatever else lives, a moment to begin with
    its end, such as a run of scope lifetime whose host was killed just now.
    """
    began = time.monotonic()
    while True:
        found = _alive(state_dir)
        bound = patience if all(one.ending for one, _ in found.values()) else min(patience, _MOMENT)
        if not found or time.monotonic() - began >= bound:
            return _told(found)
        time.sleep(_PAUSE)


def survivors(state_dir: str | os.PathLike[str], patience: float) -> dict[str, str]:
    """As `leaked`, of what is alive even ``patience`` seconds after it was killed."""
    deadline = time.monotonic() + patience
    while (found := _alive(state_dir)) and time.monotonic() < deadline:
        time.sleep(_PAUSE)
    return _told(found)


def end_all(state_dir: str | os.PathLike[str]) -> list[int]:
    """SIGKILL the workers and programs that the logs name, and all below them; the pids reached.

    Also what an orphaned program had started, as long as it is in the run's control group, or carries
    the run's id in its environment.  The groups are removed.
    """
    reached: list[int] = []
    tries = list(attempts(state_dir))
    for one in tries:
        # A stopped worker starts no ladder and stays the parent of all orphans until the tree is gone.
        # (One that is at another run of this directory by now is met there.)
        if one.worker is not None and one.has_worker and signal_process(one.worker, signal.SIGSTOP):
            reached += kill_below(one.worker.pid) + kill(one.worker)
        if one.program is not None and probe(one.program) is Liveness.ALIVE:
            reached += kill_below(one.program.pid) + kill(one.program)
    groups = groups_of(tries)
    directories = [one for found in groups.values() for one in found]
    for _ in range(_ROUNDS):
        orphans = [stat for stat, _ in (*_marked({one.run_id for one in tries}), *_grouped(groups))]
        if not orphans:
            break
        reached += tree.signal_all(orphans, signal.SIGKILL)
        for directory in directories:
            run_cgroups.kill_group(directory)  # what forks faster than it is listed
        time.sleep(_PAUSE)
    for directory in directories:
        run_cgroups.remove_soon(directory)
    return sorted(set(reached))


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
    tries = list(attempts(state_dir))
    newest = {one.run_id: one for one in tries}
    for one in tries:
        if one.has_worker:
            found[one.run_id] = one, f"its worker{_pid(one.worker)}"
        elif one.program is not None and probe(one.program) is Liveness.ALIVE:
            found[one.run_id] = one, f"its program{_pid(one.program)}, without a worker"
    orphans = (*_marked(set(newest) - set(found)), *_grouped(groups_of(tries)))
    for stat, run_id in orphans:
        found.setdefault(run_id, (newest[run_id], f"a process that it started (pid {stat.pid})"))
    return found


def _told(found: dict[str, tuple[Attempt, str]]) -> dict[str, str]:
    return {
        run_id: f"{what}, of {one.command}" if one.command else what for run_id, (one, what) in found.items()
    }


def groups_of(tries: list[Attempt]) -> dict[str, list[str]]:
    """The control groups that are there for these runs, by run id; their names say whose they are."""
    found: dict[str, list[str]] = {}
    known = {one.run_id for one in tries}
    for directory_id in {one.directory_id for one in tries if one.directory_id is not None}:
        found |= run_cgroups.leftovers(cgroups.places(), directory_id)
    return {run_id: groups for run_id, groups in found.items() if run_id in known}


def _grouped(groups: dict[str, list[str]]) -> Iterator[tuple[Stat, str]]:
    """Living processes in these groups."""
    for run_id, directory in ((run_id, one) for run_id, found in groups.items() for one in found):
        name = os.path.basename(directory).encode()
        for pid in _members(directory):
            try:
                stat = read_stat(pid)  # before the group: a pid reused in between fails the signal
                with open(f"/proc/{pid}/cgroup", "rb") as file:
                    inside = name in file.read()
            except OSError:
                continue
            if inside and stat is not None and not stat.dead:
                yield stat, run_id


def _members(directory: str) -> list[int]:
    found: list[int] = []
    for below, _, _ in os.walk(directory):
        try:
            with open(os.path.join(below, "cgroup.procs"), encoding="ascii") as file:
                found += map(int, file.read().split())
        except OSError:  # it is being removed
            continue
    return found


def _marked(run_ids: set[str]) -> Iterator[tuple[Stat, str]]:
    """Living processes whose environment, as they were started with, names one of these runs."""
    marks = {f"{RUN_ID_VARIABLE}={run_id}".encode(): run_id for run_id in run_ids}
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
        None if evidence.header is None else evidence.header.directory_id,
        _identity(evidence.worker),
        _identity(evidence.program),
        any((evidence.receipt, evidence.terminal, evidence.stopping)),
        _command({} if evidence.header is None else evidence.header.detail),
    )


def _command(detail: dict[str, object]) -> str:
    argv = detail.get("argv")
    words = shlex.join(map(str, argv)) if isinstance(argv, list) else ""
    return words if len(words) <= _SHOWN else f"{words[:_SHOWN]}..."


def _identity(form: object) -> ProcessIdentity | None:
    try:
        return ProcessIdentity.from_dict(form) if isinstance(form, dict) else None
    except ValueError:
        return None


def _pid(identity: ProcessIdentity | None) -> str:
    return "" if identity is None else f" (pid {identity.pid})"
