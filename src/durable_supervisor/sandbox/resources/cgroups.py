"""Where groups for runs can be made: beneath the group that we are in, found from what the kernel says.

Version 1 has one hierarchy for each controller, or for a few together; version 2 has one for
all that version 1 has not taken.  Both may be mounted at once, anywhere (cgroups(7)).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping

from .. import mounts
from ..kernel import write
from ..report import CGROUP_KILL, CGROUP_V1, CGROUP_V2
from .run_cgroups import CONTROLLER_OF, PREFIX, leftovers, remove_group, remove_soon, soon

ROOT = "/sys/fs/cgroup"  # where systems mount them all
V1_CONTROLLERS = ("memory", "pids", "cpu", "cpuacct")
V2_CONTROLLERS = ("memory", "pids", "cpu")
# A group that holds us and no controllers, beside which runs get theirs: see `v2_parent`.
LEAF = "supervisor"
_PROBE = "probe"  # in the place of a directory's id, in the names of groups


def own_groups(mountinfo: str, membership: str) -> tuple[str | None, dict[str, str]]:
    """The directories of our own groups: in version 2, and by controller in version 1.

    ``mountinfo`` and ``membership`` are ``/proc/self/mountinfo`` and ``/proc/self/cgroup`` (proc(5)).
    A group above what is mounted, as in some containers, has no directory.
    """
    ours = _membership(membership)
    v2: str | None = None
    v1: dict[str, str] = {}
    for mount in map(mounts.parse, mountinfo.splitlines()):
        if mount.kind == "cgroup2":
            v2 = v2 or _directory(mount, ours.get(""))
        elif mount.kind == "cgroup":
            for controller in set(mount.options) & set(V1_CONTROLLERS):
                directory = _directory(mount, ours.get(controller))
                if directory is not None:
                    v1.setdefault(controller, directory)
    return v2, v1


def find() -> tuple[str | None, dict[str, str]]:
    """`own_groups` of this process; nothing on a system without them."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            mountinfo = file.read()
        with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
            membership = file.read()
    except OSError:
        return None, {}
    return own_groups(mountinfo, membership)


def places() -> list[str]:
    """Beneath which groups runs that are started by this process get theirs."""
    return _parents_of(*find())


def _parents_of(own: str | None, v1: dict[str, str]) -> list[str]:
    return [*([] if own is None else [v2_parent(own)]), *v1.values()]


def v2_parent(own: str) -> str:
    """Beneath which group of version 2 runs get theirs, given our own.

    A group that has processes cannot have controllers for its children ("no internal
    processes", cgroups(7)), so beneath our own a run's tree can be killed and its time be read, no more.
    Someone who delegates the whole, and puts us into a leaf of it by the name
    `LEAF`, gives us the parent.  We never move ourselves: a service manager that finds controllers enabled
    in the group of a unit cannot start the unit again while runs live in it.
    """
    above = os.path.dirname(own)
    return above if os.path.basename(own) == LEAF and not _processes(above) else own


def children_controllers(parent: str) -> list[str]:
    """Which controllers the children of this group of version 2 have, once enabled where we may."""
    available = set(_words(os.path.join(parent, "cgroup.controllers"))) & set(V2_CONTROLLERS)
    control = os.path.join(parent, "cgroup.subtree_control")
    for controller in available - set(_words(control)):
        try:
            write(control, f"+{controller}")
        except OSError:
            continue  # not ours, or it has processes
    return sorted(available & set(_words(control)))


def probe() -> dict[str, object]:
    """Where groups can be made, really: each is made, entered by a child of ours and removed again.

    ``{"v2": {"parent": str, "controllers": [str], "kill": bool} | None, "v1": {controller: parent}}``.
    Only for a single-threaded process.
    """
    own, v1 = find()
    _sweep(_parents_of(own, v1))
    name = f"{PREFIX}{_PROBE}.{os.getpid()}"
    usable = {c: parent for c, parent in sorted(v1.items()) if _works(os.path.join(parent, name)) is not None}
    if own is None:
        return {"v2": None, "v1": usable}
    parent = v2_parent(own)
    kills = _works(os.path.join(parent, name))
    if kills is None:
        return {"v2": None, "v1": usable}
    return {
        "v2": {"parent": parent, "controllers": children_controllers(parent), "kill": kills},
        "v1": usable,
    }


def layout(
    found: Mapping[str, object],
    *,
    memory: int | None = None,
    processes: int | None = None,
    cpus: float | None = None,
    cpu_seconds: float | None = None,
) -> dict[str, object] | None:
    """A plan's groups: ``found`` is what `probe` said; what it cannot hold is left out.

    ``v2``: the parent in version 2, or None; ``v1``: the parent by controller, of those that version 2
    has not got; ``memory``, ``processes``, ``cpus``: the limits, or None; ``accounts``: is
    processor time asked for?  None where there would be no group at all.
    """
    v2, v1, controllers = _found(found)
    limits: dict[str, float | None] = {"memory": memory, "processes": processes, "cpus": cpus}
    parents: dict[str, str] = {}
    for limit, controller in CONTROLLER_OF.items():
        if limits[limit] is None or controller in controllers:
            continue
        if controller in v1:
            parents[controller] = v1[controller]
        else:
            limits[limit] = None
    accounts = cpu_seconds is not None
    if accounts and v2 is None and "cpuacct" in v1:
        parents["cpuacct"] = v1["cpuacct"]
    if v2 is None and not parents:
        return None
    return {"v2": v2, "v1": parents, "accounts": accounts, **limits}


def mechanism(found: Mapping[str, object], wanted: str) -> str | None:
    """What holds ``tree``, ``memory``, ``processes``, ``cpus`` or ``cpu_seconds``; None: nothing here."""
    v2, v1, controllers = _found(found)
    if wanted == "tree":
        return CGROUP_KILL if v2 is not None and _kills(found) else None
    if wanted == "cpu_seconds":
        return CGROUP_V2 if v2 is not None else CGROUP_V1 if "cpuacct" in v1 else None
    controller = CONTROLLER_OF[wanted]
    return CGROUP_V2 if controller in controllers else CGROUP_V1 if controller in v1 else None


def _found(found: Mapping[str, object]) -> tuple[str | None, dict[str, str], list[str]]:
    """Parent in version 2, parents in version 1, controllers of version 2."""
    v2, v1 = found.get("v2"), found.get("v1")
    parents = dict(v1) if isinstance(v1, Mapping) else {}
    if not isinstance(v2, Mapping):
        return None, parents, []
    return str(v2["parent"]), parents, list(v2["controllers"])


def _kills(found: Mapping[str, object]) -> bool:
    v2 = found.get("v2")
    return isinstance(v2, Mapping) and v2.get("kill") is True


def _sweep(parents: list[str]) -> None:
    """Remove what probes left that were killed: the name of a group ends with the pid of its maker."""
    for pid, groups in leftovers(parents, _PROBE).items():
        if not os.path.exists(f"/proc/{pid}"):
            for group in groups:
                remove_group(group)


def _works(group: str) -> bool | None:
    """Make the group, move a child into it, and end that.

    None: it cannot be done.  True: ``cgroup.kill`` has ended the child.
    """
    remove_group(group)  # of a probe that was killed, and had our number
    try:
        os.mkdir(group, 0o755)
    except OSError:
        return None
    gate, held = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        os.close(held)
        os.read(gate, 1)
        os._exit(0)
    os.close(gate)
    try:
        write(os.path.join(group, "cgroup.procs"), str(child))
        return _ended_by_group(group, child)
    except OSError:
        return None
    finally:
        os.kill(child, signal.SIGKILL)
        os.close(held)
        os.waitpid(child, 0)
        remove_soon(group)


def _ended_by_group(group: str, child: int) -> bool:
    kill = os.path.join(group, "cgroup.kill")
    if not os.path.exists(kill):
        return False  # version 1, or a kernel before 5.14
    write(kill, "1")
    return soon(lambda: os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None)


def _membership(text: str) -> dict[str, str]:
    """Path by controller; version 2 is the one without a name."""
    paths = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path
    return paths


def _directory(mount: mounts.Mount, path: str | None) -> str | None:
    """Where a group's path is, if this mount shows it."""
    if path is None or path.startswith("/.."):
        return None
    inside = os.path.relpath(path, mount.root)
    return None if inside.startswith("..") else os.path.normpath(os.path.join(mount.path, inside))


def _processes(group: str) -> list[str]:
    return _words(os.path.join(group, "cgroup.procs"))


def _words(path: str) -> list[str]:
    try:
        with open(path, encoding="ascii") as file:
            return file.read().split()
    except OSError:
        return []
