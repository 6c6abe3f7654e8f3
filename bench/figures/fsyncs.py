"""How many syncs a start costs at 16 callers, counted by strace.

Those of the supervisor: journal, state directory, shards.  Those that each worker makes
for its own receipt are told beside it; they run side by side, nobody else waits for them.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from ..child import ChildFailed, answer, host
from ..model import Context, NotMeasured, Row
from .throughput import CALLERS

TITLE = "fsyncs per start, 16 callers (strace)"
ROWS = ("fsyncs",)
_CALL = re.compile(r"^(\d+)\s+.*\b(?:fsync|fdatasync)\((?:\d+<(.*?)>)?")


async def measure(ctx: Context) -> list[Row]:
    strace = shutil.which("strace")
    if strace is None:
        raise NotMeasured("strace is not installed")
    count = ctx.size(320, 64)
    with ctx.directory("fsyncs") as directory:
        trace = directory / "trace"
        # seccomp-bpf: only the traced calls stop, so that callers still meet as they would without.
        argv = [strace, "-f", "-y", "--seccomp-bpf", "-e", "trace=fsync,fdatasync", "-o", str(trace)]
        try:
            found = answer([*argv, *host("throughput", directory / "state", count, CALLERS)])
        except ChildFailed as failure:
            raise NotMeasured(f"strace: {failure}") from None
        ours, theirs = count_syncs(trace)
    starts = found["starts"]
    return [
        Row(
            key="fsyncs",
            value=ours / starts,
            measured={
                "supervisor_syncs": ours,
                "worker_syncs_per_run": round(theirs / starts, 3),
                "n": starts,
                "runs_per_s_traced": round(found["runs_per_s"], 1),
            },
        )
    ]


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
