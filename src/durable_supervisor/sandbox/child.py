"""Confine this process, which is about to execute the program.  Runs in the paused child.

The order matters.  Namespaces first, since they need what privileges there are, and what follows
should be seen from within them.  Privileges go next: in a new user namespace a process has all
of them.  Landlock after that, for it needs no_new_privs.  Resource limits late, or a bound of three
open files would hinder the steps before; the system call filter last, for the same reason.
"""

from __future__ import annotations

import os

from ..model.enforcement import PARTIAL
from .plan import Files, Plan, Refused
from .report import (
    BUBBLEWRAP,
    CGROUP_V1,
    CGROUP_V2,
    GROUP_OPEN,
    LANDLOCK,
    MEMORY_OPEN,
    METADATA_OPEN,
    NO_NEW_PRIVS,
    RECORDS_OPEN,
    RLIMIT,
    SECCOMP,
    SETTINGS_OPEN,
    TRUNCATION_OPEN,
    by,
    failed,
)

Changes = dict[str, dict[str, object]]


class _Steps:
    """Carries out one plan, and notes where less came of it."""

    def __init__(self, plan: Plan, executable: str, environment: dict[str, str], terminal: bool) -> None:
        self.plan = plan
        self.executable = executable
        self.environment = environment
        self.terminal = terminal
        self.changes: Changes = {}
        self.sockets = plan.seccomp.get("sockets")
        self.is_wrapped = plan.files is not None and plan.files.backend == BUBBLEWRAP

    def give_up(self, axis: str, change: dict[str, object]) -> None:
        """Raises Refused where the axis is required."""
        if self.plan.required(axis):
            raise Refused(axis, str(change["reason"]))
        self.changes[axis] = change

    def namespaces(self) -> None:
        from . import namespaces

        network = self.plan.network
        loopback = network is not None and network["mode"] == "loopback"
        refused = namespaces.enter(self.plan.namespaces, loopback=loopback)
        if "user" in refused and self.plan.privileges and not self.plan.landlock_scope:
            self._privileges_in_part(f"{MEMORY_OPEN}; {refused['user']}")
        if "net" in refused:
            self._without_network(refused["net"])
        if "mount" in refused:
            self._without_mounts(refused["mount"])

    def _privileges_in_part(self, reason: str) -> None:
        self.give_up("privileges", {"applied": PARTIAL, "mechanism": NO_NEW_PRIVS, "reason": reason})

    def _without_mounts(self, reason: str) -> None:
        for axis, report in self.plan.axes.items():
            mechanism = report.get("mechanism")
            if mechanism in (CGROUP_V1, CGROUP_V2):  # not the tree's: that is held without a group, too
                why = f"{GROUP_OPEN}: {reason}"
                self.give_up(axis, {"applied": PARTIAL, "mechanism": mechanism, "reason": why})
        if self.plan.privileges and os.geteuid() == 0:
            self._privileges_in_part(f"{SETTINGS_OPEN}: {reason}")
        if self.plan.files is not None and self.plan.files.mounts:
            self._metadata_is_open(self.plan.files, reason)

    def _without_network(self, reason: str) -> None:
        """No namespace of its own: then no socket at all, where none is what was asked for."""
        if self.plan.network is not None and self.plan.network["mode"] == "none" and self.plan.seccomp:
            self.sockets = "none"
            self.changes["network"] = by(SECCOMP)
        else:
            self.sockets = "no_unix" if self.plan.files is not None else None
            self.give_up("network", failed(reason))

    def _metadata_is_open(self, files: Files, reason: str) -> None:
        """Also truncation, where this Landlock does not hold it, and what the mounts were to hide."""
        from .files import landlock

        files.mounts = False
        found = [METADATA_OPEN]
        if files.abi < landlock.TRUNCATE_SINCE:
            found.append(TRUNCATION_OPEN)
        if files.hidden is not None:
            found.append(RECORDS_OPEN)
        why = f"{'; '.join(found)}: {reason}"
        self.give_up("files", {"applied": PARTIAL, "mechanism": LANDLOCK, "reason": why})

    def files(self, files: Files) -> None:
        """Read-only mounts, then privileges, then Landlock: on the very files that were looked at first."""
        from . import mounts
        from .files import landlock, paths, readonly

        grants = paths.open_grants(files)
        if files.mounts:
            try:
                if files.hidden is not None:
                    mounts.hide(files.hidden)
                readonly.read_only_but(grants)
            except OSError as error:
                self._metadata_is_open(files, _text("read-only mounts", error))
        self.privileges()
        program = paths.open_program(self.executable)
        allowed = [*grants, program, *paths.open_base(terminal=self.terminal)]
        try:
            landlock.restrict(allowed)
        except OSError as error:
            self.give_up("files", failed(_text("landlock", error)))
        paths.close_all(allowed)

    def wrapped(self, files: Files) -> None:
        """What bubblewrap is given; it does the rest, or does not execute the program."""
        from . import privileges
        from .calls import seccomp
        from .files import bubblewrap, landlock, paths

        grants, program = paths.open_grants(files), paths.open_program(self.executable)
        try:
            # Before there were scopes, a domain had to handle files, and none that does can mount.
            if self.plan.landlock_scope and landlock.probe() >= landlock.SCOPES_SINCE:
                privileges.gain_none()
                landlock.restrict(None)
            wanted = self.plan.seccomp
            rules = seccomp.program(wanted | {"tracing": True}) if wanted else b""
            bubblewrap.hand_over(files, grants, program, rules, self.environment)
        except OSError as error:
            raise Refused("files", _text("bubblewrap", error)) from None

    def privileges(self) -> None:
        if not self.plan.privileges:
            return
        from . import privileges

        try:
            privileges.drop()
        except OSError as error:
            self.give_up("privileges", failed(_text("privileges", error)))

    def scope(self) -> None:
        from .files import landlock

        try:
            landlock.restrict(None, sockets=self.plan.network is None)
        except OSError as error:
            self.give_up("privileges", failed(_text("landlock", error)))

    def rlimits(self) -> None:
        from .resources import rlimits

        for axis, reason in rlimits.apply(self.plan.rlimits).items():
            if self.plan.axes[axis].get("mechanism") == RLIMIT:  # else a group holds it
                self.give_up(axis, failed(reason))

    def seccomp(self) -> None:
        from .calls import seccomp

        try:
            seccomp.install(self.plan.seccomp | {"sockets": self.sockets})
        except OSError as error:
            self._without_filter(_text("seccomp", error))

    def _without_filter(self, reason: str) -> None:
        self.give_up("privileges", failed(reason))
        if self.sockets is not None:
            axis = "files" if self.sockets == "no_unix" else "network"
            self.give_up(axis, failed(reason))


def confine(plan: Plan, executable: str, environment: dict[str, str], *, terminal: bool) -> Changes:
    """Do what the plan says.  What came of each axis where it is not as planned.

    ``executable`` may be executed whatever the grants say, and has ``environment``; ``terminal``: stdio is
    one, and may be opened again.  Raises Refused.
    """
    _load(plan)
    steps = _Steps(plan, executable, environment, terminal)
    if any(plan.namespaces.values()):
        steps.namespaces()
    if plan.files is None:
        steps.privileges()
        if plan.landlock_scope:
            steps.scope()
    elif steps.is_wrapped:
        steps.wrapped(plan.files)
    else:
        steps.files(plan.files)
    if plan.rlimits:
        steps.rlimits()
    if plan.seccomp and not steps.is_wrapped:
        steps.seccomp()
    return steps.changes


def _load(plan: Plan) -> None:
    """Import what the steps take.  Once they have begun, our own files may be out of reach."""
    if any(plan.namespaces.values()):
        from . import namespaces  # noqa: F401
    if plan.files is not None or plan.landlock_scope:
        from .files import landlock, paths, readonly  # noqa: F401
    if plan.privileges:
        from . import privileges  # noqa: F401
    if plan.rlimits:
        from .resources import rlimits  # noqa: F401
    if plan.seccomp:
        from .calls import seccomp  # noqa: F401


def _text(step: str, error: OSError) -> str:
    return f"{step}: {error.strerror or os.strerror(error.errno or 0)}"
