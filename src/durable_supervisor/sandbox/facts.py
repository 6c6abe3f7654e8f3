"""What the probes found: the facts that a plan rests on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .probe import PROBES


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What this machine can do for this user.  What is not known to work, does not.

    ``landlock`` is the ABI (0: none), ``bubblewrap`` the path of one that works.  ``namespaces``:
    which of ``user``, ``net`` and ``mount`` can be made; the last two inside the first unless ``privileged``.
    ``cgroups``: where a run's groups can be made, see `sandbox.resources.cgroups`.  ``failed``: why a probe
    could not tell, by its name.
    """

    privileges: bool = False
    seccomp: bool = False
    landlock: int = 0
    namespaces: Mapping[str, bool] = field(default_factory=dict)
    cgroups: Mapping[str, Any] = field(default_factory=dict)
    bubblewrap: str | None = None
    failed: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_lines(cls, output: bytes, otherwise: str = "it did not answer") -> Facts:
        """From what `sandbox.probe` printed.  ``otherwise``: why a probe that is missing there is."""
        found: dict[str, Any] = {}
        failed: dict[str, str] = dict.fromkeys(PROBES, otherwise)
        for raw in output.splitlines():
            try:
                line = json.loads(raw)
                name = line["probe"]
            except (ValueError, KeyError, TypeError):
                continue  # cut short: its probe is counted as missing
            failed.pop(name, None)
            if "found" in line:
                found[name] = line["found"]
            else:
                failed[name] = str(line.get("failed"))
        return cls(**found, failed=failed)

    @property
    def complete(self) -> bool:
        """Is there nothing that could be missing?  (Bubblewrap is one way of two.)"""
        able = (
            self.privileges,
            self.seccomp,
            self.landlock,
            *map(self.namespaces.get, ("user", "net", "mount")),
        )
        return not self.failed and all(able) and any(self.cgroups.values())

    def lacking(self, probe: str, otherwise: str) -> str:
        """Why something is not to be had: its probe could not tell, or else what that means."""
        return f"cannot tell ({self.failed[probe]})" if probe in self.failed else otherwise

    def to_dict(self) -> dict[str, object]:
        """JSON form; the keys are the field names."""
        return {
            "privileges": self.privileges,
            "seccomp": self.seccomp,
            "landlock": self.landlock,
            "namespaces": dict(self.namespaces),
            "cgroups": dict(self.cgroups),
            "bubblewrap": self.bubblewrap,
            "failed": dict(self.failed),
        }
