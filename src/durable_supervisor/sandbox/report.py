"""What a report says of an axis: mechanisms by name, and what is left open where it is less than full.

The supervisor says it as expected, the paused child as it came out, both in these words.
"""

from __future__ import annotations

from ..model.enforcement import FULL, NONE

LANDLOCK, BUBBLEWRAP = "landlock", "bubblewrap"
NAMESPACE, SECCOMP = "namespace", "seccomp"
NO_NEW_PRIVS = "no_new_privs"
RLIMIT = "rlimit"
CGROUP_V1, CGROUP_V2 = "cgroup_v1", "cgroup_v2"
CGROUP_KILL = "cgroup.kill"

# What is left open.
SOCKETS_OPEN = "sockets in the file system can be reached"
METADATA_OPEN = "modes, owners and times of files can be changed outside the grants"
TRUNCATION_OPEN = "files that can be read can be truncated"
MEMORY_OPEN = "the memory of other processes of the user can be written: this kernel has no Landlock"
SETTINGS_OPEN = "root may write the kernel's settings, such as what it executes when a program crashes"
RECORDS_OPEN = "the supervisor's own directory, which lies in a grant, can be used"
GROUP_OPEN = "the program may write to the files of its group, and so leave it"

NO_FILTER = "this kernel filters no system calls"


def failed(reason: str) -> dict[str, object]:
    """A change: nothing is left of this axis."""
    return {"applied": NONE, "mechanism": None, "reason": reason}


def by(mechanism: str) -> dict[str, object]:
    """A change: enforced as asked, by something else than was planned."""
    return {"applied": FULL, "mechanism": mechanism, "reason": None}
