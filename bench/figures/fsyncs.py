"""How many syncs a start costs at 16 callers: those of the supervisor, for journal and directories.

Counted twice.  The figure comes from a run at full speed (a preloaded shim counts), since strace
slows every worker's birth so much that fewer callers meet in one commit.  A traced run beside
it tells the same count so slowed, and the syncs that each worker makes for its own receipt.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from ..child import ChildFailed, answer, host
from ..model import Context, NotMeasured, Row
from .throughput import CALLERS

TITLE = "fsyncs per start, 16 callers"
ROWS = ("fsyncs",)
_CALL = re.compile(r"^(\d+)\s+.*\b(?:fsync|fdatasync)\((?:\d+<(.*?)>)?")


async def measure(ctx: Context) -> list[Row]:
    runs = ctx.size(800, 150)
    with ctx.directory("fsyncs") as directory:
        counted = directory / "count"
        # Only the supervisor has the shim: it hands workers nothing of its environment.
        extra = {"LD_PRELOAD": ctx.tool("slow_sync"), "SYNC_COUNT_FILE": str(counted)}
        found = answer(host("throughput", directory / "state", runs, CALLERS), extra)
        measured = {"syncs": int(counted.read_text()), "n": found["starts"]}
        note = ""
        try:
            measured |= _traced(directory, ctx.size(320, 64))
        except NotMeasured as reason:
            note = str(reason)
    return [Row(key="fsyncs", value=measured["syncs"] / measured["n"], measured=measured, note=note)]


def _traced(directory: Path, runs: int) -> dict[str, float]:
    strace = shutil.which("strace")
    if strace is None:
        raise NotMeasured("not traced: strace is not installed")
    trace = directory / "trace"
    # seccomp-bpf: only the traced calls stop.
    argv = [strace, "-f", "-y", "--seccomp-bpf", "-e", "trace=fsync,fdatasync", "-o", str(trace)]
    try:
        found = answer([*argv, *host("throughput", directory / "traced", runs, CALLERS)])
    except ChildFailed as failure:
        raise NotMeasured(f"not traced: {failure}") from None
    ours, theirs = count_syncs(trace)
    starts = found["starts"]
    return {
        "traced_per_start": round(ours / starts, 3),
        "traced_of_worker_per_run": round(theirs / starts, 3),
    }


def count_syncs(trace: Path) -> tuple[int, int]:
    """(of the journal and the directory, of run logs and their shards by workers)."""
    ours = theirs = 0
    for line in trace.read_text(errors="replace").splitlines():
        found = _CALL.match(line)
        if found is None or "resumed>" in line:
            continue
        if "/runs" in (found[2] or ""):
            theirs += 1
        else:
            ours += 1
    return ours, theirs
