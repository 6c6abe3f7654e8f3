"""Resource limits of the kernel (setrlimit(2)): of each process, and what children inherit.

Weaker than a group: most count one process at a time, so a tree of many gets many times as much.
"""

from __future__ import annotations

import math
import resource

TYPE_CHECKING = False
if TYPE_CHECKING:  # as in `typing`, which a worker does not load
    from collections.abc import Mapping

    from ...model.command import Limits

_CPU_GRACE = 2  # seconds from SIGXCPU to SIGKILL
_AXES = {
    resource.RLIMIT_AS: "memory",
    resource.RLIMIT_NPROC: "processes",
    resource.RLIMIT_NOFILE: "open_files",
    resource.RLIMIT_FSIZE: "file_size",
    resource.RLIMIT_CPU: "cpu",
}


def table(limits: Limits, found: Mapping[str, object]) -> list[tuple[int, int, int]]:
    """(resource, soft, hard) for `apply`: what no group holds, and what is meant for each process.

    ``found``: what `cgroups.probe` said.  The hard limit too: the soft one is the program's to raise.
    For memory that is address space: what a runtime maps and never touches counts too.
    """
    from .cgroups import mechanism  # the paused program needs `apply` alone

    bounds = [
        (resource.RLIMIT_AS, None if mechanism(found, "memory") else limits.max_memory_bytes),
        (resource.RLIMIT_NPROC, None if mechanism(found, "processes") else limits.max_processes),
        (resource.RLIMIT_NOFILE, limits.max_open_files),
        (resource.RLIMIT_FSIZE, limits.max_file_bytes),
    ]
    rows = [(which, value, value) for which, value in bounds if value is not None]
    if limits.max_cpu_seconds is not None:
        # In the kernel's unit, and never before the time is over.  Where the worker stops the tree at that
        # moment, and says why, the signal to a single process comes later.
        whole = math.ceil(limits.max_cpu_seconds) + (1 if mechanism(found, "cpu_seconds") else 0)
        rows.append((resource.RLIMIT_CPU, whole, whole + _CPU_GRACE))
    return rows


def apply(rows: list[tuple[int, int, int]]) -> dict[str, str]:
    """Take these limits on, for good; in the paused child.  Answers why, by axis, for what could not be.

    A hard limit that we were given ourselves is never raised: it is the narrower one then.
    """
    refused = {}
    for which, soft, hard in rows:
        _, given = resource.getrlimit(which)
        bound = hard if given == resource.RLIM_INFINITY else min(hard, given)
        try:
            resource.setrlimit(which, (min(soft, bound), bound))
        except (OSError, ValueError) as error:
            refused[_AXES[which]] = f"setrlimit: {error}"
    return refused
