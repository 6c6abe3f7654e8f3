"""Resource limits of the kernel (setrlimit(2)): of each process, and what children inherit.

Weaker than a group: most count one process at a time, so a tree of many gets many times as much.
"""

from __future__ import annotations

import math
import resource

EACH = "each process is bounded by itself, not the tree together"
USER = "counts all processes of the user, not the tree's"
NOT_ROOT = "the kernel does not hold root's processes to this limit"
_CPU_GRACE = 2  # seconds from SIGXCPU to SIGKILL
_AXES = {
    resource.RLIMIT_AS: "memory",
    resource.RLIMIT_NPROC: "processes",
    resource.RLIMIT_NOFILE: "open_files",
    resource.RLIMIT_FSIZE: "file_size",
    resource.RLIMIT_CPU: "cpu",
}


def table(
    *,
    memory: int | None = None,
    processes: int | None = None,
    cpu_seconds: float | None = None,
    open_files: int | None = None,
    file_size: int | None = None,
) -> list[tuple[int, int, int]]:
    """(resource, soft, hard) for `apply`.  The hard one as well: the soft one is the program's to raise.

    ``memory`` is address space: what a runtime maps and never touches counts too.
    """
    limits = [
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_NPROC, processes),
        (resource.RLIMIT_NOFILE, open_files),
        (resource.RLIMIT_FSIZE, file_size),
    ]
    rows = [(which, value, value) for which, value in limits if value is not None]
    if cpu_seconds is not None:
        whole = math.ceil(cpu_seconds)  # the kernel's unit: never before the time is over
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
