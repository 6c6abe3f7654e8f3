"""Figures of a running tree, as psutil reads them; for people, never evidence."""

from __future__ import annotations

from dataclasses import replace

from ...model.identity import ProcessIdentity
from ...model.view import RunView
from ...process.identity import Liveness, probe
from ...process.locks import LockState, probe_lock
from ...process.tree import descendants


def with_live_figures(seen: RunView, log: str) -> RunView:
    """The view with ``live``: CPU seconds, resident bytes and the processes of the program's tree.

    ``log``: whose lock proves, once they are read, that the worker was at this run and not at a later one.
    """
    if seen.worker is None:
        return seen
    try:
        worker = ProcessIdentity.from_dict(seen.worker)
    except ValueError:
        return seen
    if probe(worker) is not Liveness.ALIVE:
        return seen
    processes = [figures for stat in descendants(worker.pid) if (figures := _figures(stat.pid)) is not None]
    if probe_lock(log) is not LockState.HELD:
        return seen
    return replace(
        seen,
        live={
            "cpu_seconds": round(sum(float(str(one["cpu_seconds"])) for one in processes), 3),
            "rss_bytes": sum(int(str(one["rss_bytes"])) for one in processes),
            "processes": processes,
        },
    )


def _figures(pid: int) -> dict[str, object] | None:
    import psutil

    try:
        process = psutil.Process(pid)
        with process.oneshot():
            times = process.cpu_times()
            return {
                "pid": pid,
                "parent": process.ppid(),
                "name": process.name(),
                "status": process.status(),
                "cpu_seconds": round(times.user + times.system, 3),
                "rss_bytes": process.memory_info().rss,
                "threads": process.num_threads(),
            }
    except psutil.Error:
        return None
