"""How one program is to be confined, as plain data: the supervisor decides, the worker carries out."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # as in `typing`, which a worker does not load
    from typing import Any


class Refused(Exception):  # noqa: N818  a decision, not a fault
    """A required axis cannot be had, whatever the probes said.  The program must not be executed."""

    def __init__(self, axis: str, reason: str) -> None:
        super().__init__(f"{axis}: {reason}")
        self.axis = axis
        self.reason = reason


class Files:
    """The files axis: which paths, and by which mechanism.

    ``grants``: path, access (`model.policy.Access`), device and inode number as found at admission.
    ``abi``: Landlock's, 0 where bubblewrap is used, whose program is ``bwrap``.  ``mounts``: also make
    every mount read-only but what may be written, since Landlock leaves modes and times alone.
    ``hidden``: lies in a grant, and is the supervisor's own: not granted.
    """

    __slots__ = ("abi", "backend", "bwrap", "grants", "hidden", "mounts")

    def __init__(
        self,
        backend: str,
        grants: list[tuple[str, str, int, int]],
        *,
        abi: int = 0,
        bwrap: str | None = None,
        mounts: bool = False,
        hidden: str | None = None,
    ) -> None:
        self.backend = backend
        self.grants = grants
        self.abi = abi
        self.bwrap = bwrap
        self.mounts = mounts
        self.hidden = hidden

    @classmethod
    def from_message(cls, message: dict[str, Any]) -> Files:
        grants = [(path, access, device, inode) for path, access, device, inode in message["grants"]]
        return cls(
            message["backend"],
            grants,
            abi=message["abi"],
            bwrap=message["bwrap"],
            mounts=message["mounts"],
            hidden=message["hidden"],
        )

    def to_message(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in self.__slots__}


class Plan:
    """Everything that is done to one program before it is executed.  Its messages are JSON.

    ``axes`` is the report as it will be if every step succeeds, with ``required`` beside it.
    What is None, False or empty is not done.
    """

    __slots__ = (
        "axes", "cgroups", "cpu_seconds", "files", "landlock_scope", "namespaces", "network", "privileges",
        "rlimits", "seccomp",
    )  # fmt: skip

    axes: dict[str, dict[str, object]]  # requested, required, applied, mechanism, reason
    files: Files | None
    network: dict[str, str] | None  # mode: none | loopback, mechanism: namespace | seccomp
    namespaces: dict[str, bool]  # user, net, mount
    # sockets: None | none | own_namespace | no_unix; refused where true: io_uring, tracing,
    # user_namespaces, metadata
    seccomp: dict[str, object]
    landlock_scope: bool  # keep it from tracing and signalling what is outside
    cgroups: dict[str, object] | None  # see `sandbox.resources.cgroups`
    rlimits: list[tuple[int, int, int]]  # resource, soft, hard
    privileges: bool
    cpu_seconds: float | None  # of the whole tree, watched by the worker

    def __init__(self) -> None:
        """A plan of which nothing is done."""
        self.axes = {}
        self.files = None
        self.network = None
        self.namespaces = {"user": False, "net": False, "mount": False}
        self.seccomp = {}
        self.landlock_scope = False
        self.cgroups = None
        self.rlimits = []
        self.privileges = False
        self.cpu_seconds = None

    @classmethod
    def from_message(cls, message: dict[str, object]) -> Plan:
        """The reverse of `to_message`.  Raises KeyError for a message of another form."""
        plan = cls()
        for name in cls.__slots__:
            setattr(plan, name, message[name])
        files = message["files"]
        plan.files = Files.from_message(files) if isinstance(files, dict) else None
        plan.rlimits = [(resource, soft, hard) for resource, soft, hard in plan.rlimits]
        return plan

    def to_message(self) -> dict[str, object]:
        """JSON form; the keys are the attribute names."""
        message = {name: getattr(self, name) for name in self.__slots__}
        message["files"] = None if self.files is None else self.files.to_message()
        return message

    def required(self, axis: str) -> bool:
        """Must it be enforced as asked, or the program not be executed?"""
        return self.axes.get(axis, {}).get("required") is True

    def report(self, changes: dict[str, dict[str, object]]) -> dict[str, dict[str, object]]:
        """What was enforced: as planned, but for ``changes`` (applied, mechanism, reason of an axis)."""
        kept = ("requested", "applied", "mechanism", "reason")
        return {
            axis: {name: planned.get(name) for name in kept} | changes.get(axis, {})
            for axis, planned in self.axes.items()
        }
