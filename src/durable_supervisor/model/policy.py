"""What a program may reach: its confinement, axis by axis, as asked for.

Whether this machine can do it is found out by probes, and what was really
applied is reported; nothing here knows the kernel.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, cast

from .enforcement import AXES, BACKENDS, LEVELS, NETWORKS
from .errors import invalid

MAX_GRANTS = 256
MAX_GRANTED_BYTES = 64 * 1024  # of all their paths: every segment of a run's log begins with them

Network = Literal["host", "none", "loopback"]
Level = Literal["best_effort", "required"]
FilesBackend = Literal["auto", "landlock", "bubblewrap"]


class Access(StrEnum):
    """What a grant allows with a path and everything beneath it."""

    READ = "read"  # read files, list directories
    EXECUTE = "execute"  # that, and execute
    WRITE = "write"  # read, and create, change, truncate, rename and remove
    ALL = "all"  # all of it


_ALLOWS = {
    Access.READ: frozenset({"read"}),
    Access.EXECUTE: frozenset({"read", "execute"}),
    Access.WRITE: frozenset({"read", "write"}),
    Access.ALL: frozenset({"read", "write", "execute"}),
}


@dataclass(frozen=True, slots=True)
class Grant:
    """One path that the program may use, with everything beneath it.  Raises ``INVALID_REQUEST``."""

    path: str | os.PathLike[str]
    access: Access | Literal["read", "execute", "write", "all"] = Access.READ

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", _absolute(self.path))
        try:
            object.__setattr__(self, "access", Access(self.access))
        except ValueError:
            raise invalid("policy.filesystem", "has an access other than read, execute, write, all") from None

    def to_dict(self) -> dict[str, object]:
        """JSON form; the keys are the field names."""
        return {"path": self.path, "access": Access(self.access).value}


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How a program is confined.  With any policy it gains no privileges, and loses those it has.

    ``network``: ``host`` (all of it), ``none`` (no socket to anybody), ``loopback`` (its own, that nobody
    else is on).  ``filesystem``: nothing but these grants and what a program needs to be
    executed at all; None: everything.  ``enforcement``: what becomes of an axis that this
    machine cannot enforce as asked: ``best_effort`` runs without and says so, ``required``
    refuses the start; for all axes, or for each by name, as ``{"network": "required"}``
    (the others are best effort).  ``files_backend`` chooses the mechanism of ``filesystem``.

    Raises ``INVALID_REQUEST`` naming the field at fault.
    """

    network: Network = "host"
    filesystem: Sequence[Grant] | None = None
    enforcement: Level | Mapping[str, Level] = "best_effort"
    files_backend: FilesBackend = "auto"
    _levels: Mapping[str, Level] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.network not in NETWORKS:
            raise invalid("policy.network", "must be 'host', 'none' or 'loopback'")
        if self.files_backend not in BACKENDS:
            raise invalid("policy.files_backend", "must be 'auto', 'landlock' or 'bubblewrap'")
        if self.files_backend != "auto" and self.filesystem is None:
            raise invalid("policy.files_backend", "means nothing without a filesystem", "give grants, or []")
        if self.filesystem is not None:
            object.__setattr__(self, "filesystem", _grants(self.filesystem))
        levels, kept = _levels(self.enforcement)
        object.__setattr__(self, "enforcement", kept)
        object.__setattr__(self, "_levels", levels)

    def required(self, axis: str) -> bool:
        """Must this axis be enforced as asked, or the start be refused?"""
        return self._levels.get(axis) == "required"

    def names(self, axis: str) -> bool:
        """Is this axis named in ``enforcement``, as something that the caller counts on?"""
        return isinstance(self.enforcement, Mapping) and axis in self.enforcement

    def to_dict(self) -> dict[str, object]:
        """JSON form; the keys are the field names."""
        return {
            "network": self.network,
            "filesystem": None if self.filesystem is None else [grant.to_dict() for grant in self.filesystem],
            "enforcement": self.enforcement
            if isinstance(self.enforcement, str)
            else dict(sorted(self.enforcement.items())),
            "files_backend": self.files_backend,
        }

    @classmethod
    def from_dict(cls, form: Mapping[str, Any]) -> Policy:
        """The reverse of `to_dict`.  Raises ``INVALID_REQUEST``, KeyError, TypeError."""
        grants = form["filesystem"]
        return cls(
            network=form["network"],
            filesystem=None
            if grants is None
            else [Grant(grant["path"], grant["access"]) for grant in grants],
            enforcement=form["enforcement"],
            files_backend=form["files_backend"],
        )


def _absolute(path: object) -> str:
    if not isinstance(path, str | os.PathLike):
        raise invalid("policy.filesystem", "has a grant whose path is not a path")
    text = os.fsdecode(path)
    if "\0" in text:
        raise invalid("policy.filesystem", "has a path with a NUL byte")
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise invalid("policy.filesystem", "has a path that this system's encoding cannot express") from None
    if not os.path.isabs(text):
        raise invalid("policy.filesystem", "has a relative path", "grants are absolute paths")
    return "/" + os.path.normpath(text).lstrip("/")  # normpath keeps a leading //


def _grants(grants: object) -> tuple[Grant, ...]:
    if isinstance(grants, str) or not isinstance(grants, Sequence):
        raise invalid("policy.filesystem", "must be a list of Grants, or None")
    if len(grants) > MAX_GRANTS:
        raise invalid("policy.filesystem", f"has more than {MAX_GRANTS} grants")
    accesses: dict[str, Access] = {}
    for grant in grants:
        if not isinstance(grant, Grant):
            raise invalid("policy.filesystem", "has something else than a Grant", 'Grant("/repo", "read")')
        path, access = str(grant.path), Access(grant.access)
        if accesses.setdefault(path, access) is not access:
            raise invalid("policy.filesystem", "grants one path with two accesses", "give each path once")
    if sum(len(os.fsencode(path)) for path in accesses) > MAX_GRANTED_BYTES:
        raise invalid("policy.filesystem", f"has paths of more than {MAX_GRANTED_BYTES} bytes together")
    pair = contradiction(accesses)
    if pair is not None:
        raise invalid(
            "policy.filesystem",
            f"grants less for {pair[1]} than for {pair[0]}, which it is beneath",
            "what is granted with a directory holds for all that is in it",
        )
    return tuple(grants)


def contradiction(accesses: Mapping[str, str]) -> tuple[str, str] | None:
    """Of paths with what is granted there: a directory, and one beneath it that is to have less."""
    for path, access in accesses.items():
        folder = path
        while folder != "/":
            folder = os.path.dirname(folder)
            if folder in accesses and not _ALLOWS[Access(accesses[folder])] <= _ALLOWS[Access(access)]:
                return folder, path
    return None


def _levels(enforcement: object) -> tuple[Mapping[str, Level], Level | Mapping[str, Level]]:
    """The level of each axis, and ``enforcement`` as it is kept."""
    if isinstance(enforcement, str) and enforcement in LEVELS:
        level = cast("Level", enforcement)
        return dict.fromkeys(AXES, level), level
    if not isinstance(enforcement, Mapping):
        raise invalid("policy.enforcement", "must be 'best_effort', 'required', or one of them for each axis")
    for axis, level in enforcement.items():
        if axis not in AXES:
            raise invalid("policy.enforcement", f"names an axis other than {', '.join(AXES)}")
        if level not in LEVELS:
            raise invalid(f"policy.enforcement[{axis}]", "must be 'best_effort' or 'required'")
    kept = dict(enforcement)
    return kept, kept
