"""Ends what a test left running, found through the run logs alone."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator

from durable_supervisor.model.identity import ProcessIdentity
from durable_supervisor.process import tree
from durable_supervisor.process.identity import Liveness, probe
from durable_supervisor.process.signals import signal_process
from durable_supervisor.runlog.evidence import read_evidence
from durable_supervisor.runlog.paths import RunPaths

_LOG = re.compile(r"(?P<run_id>[0-9a-z]+)\.a(?P<attempt>\d+)\.log")


def reap(state_dir: str) -> list[int]:
    """See `support.reap_state_dir`."""
    reached: list[int] = []
    for worker, program in list(_identities(os.path.join(state_dir, "runs"))):
        # A stopped worker starts no ladder and stays the parent of all orphans until the tree is gone.
        if worker is not None and signal_process(worker, signal.SIGSTOP):
            reached += _kill_below(worker.pid)
            reached += _kill(worker)
        if program is not None and probe(program) is Liveness.ALIVE:
            reached += _kill_below(program.pid)
            reached += _kill(program)
    return reached


def _kill(identity: ProcessIdentity) -> list[int]:
    return [identity.pid] if signal_process(identity, signal.SIGKILL) else []


def _kill_below(root: int) -> list[int]:
    reached: list[int] = []
    for _ in range(100):  # what forks meanwhile is found in the next round
        alive = tree.descendants(root)
        if not alive:
            break
        reached += tree.signal_all(alive, signal.SIGKILL)
    return sorted(set(reached))


def _identities(runs_dir: str) -> Iterator[tuple[ProcessIdentity | None, ProcessIdentity | None]]:
    """(worker, program) of every attempt under ``runs_dir``, as its log names them."""
    for shard in sorted(os.listdir(runs_dir)) if os.path.isdir(runs_dir) else []:
        folder = os.path.join(runs_dir, shard)
        for match in map(_LOG.fullmatch, os.listdir(folder) if os.path.isdir(folder) else []):
            if match is None:
                continue
            paths = RunPaths(runs_dir, shard, match["run_id"])
            evidence = read_evidence(paths, int(match["attempt"]))
            yield _identity(evidence.worker), _identity(evidence.program)


def _identity(form: dict[str, object] | None) -> ProcessIdentity | None:
    try:
        return None if form is None else ProcessIdentity.from_dict(form)
    except ValueError:
        return None
