"""Ends what a test left running, found through the run logs alone."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator

from durable_supervisor.model.identity import ProcessIdentity

_LOG = re.compile(r"(?P<run_id>[0-9a-z]+)\.a(?P<attempt>\d+)\.log")


def reap(state_dir: str) -> list[int]:
    """See `support.reap_state_dir`."""
    from durable_supervisor.process.signals import signal_process

    identities = list(_identities(os.path.join(state_dir, "runs")))
    ordered = [worker for worker, _ in identities] + [program for _, program in identities]
    return [
        identity.pid
        for identity in ordered
        if identity is not None and signal_process(identity, signal.SIGKILL)
    ]


def _identities(runs_dir: str) -> Iterator[tuple[ProcessIdentity | None, ProcessIdentity | None]]:
    """(worker, program) of every attempt under ``runs_dir``, as its log names them."""
    from durable_supervisor.runlog.paths import RunPaths
    from durable_supervisor.runlog.reader import LogReader

    for shard in sorted(os.listdir(runs_dir)) if os.path.isdir(runs_dir) else []:
        folder = os.path.join(runs_dir, shard)
        for match in map(_LOG.fullmatch, os.listdir(folder) if os.path.isdir(folder) else []):
            if match is None:
                continue
            paths = RunPaths(runs_dir, shard, match["run_id"])
            evidence = LogReader(paths, int(match["attempt"])).evidence()
            yield _identity(evidence.worker), _identity(evidence.program)


def _identity(form: dict[str, object] | None) -> ProcessIdentity | None:
    try:
        return None if form is None else ProcessIdentity.from_dict(form)
    except ValueError:
        return None
