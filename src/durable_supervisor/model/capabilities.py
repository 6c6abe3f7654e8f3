"""What a machine can enforce, as a typed answer and a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .schema import schema_name


@dataclass(frozen=True, slots=True)
class Capability:
    """What would be enforced of one thing that may be asked for, under a policy.

    ``axis`` is one of `model.enforcement.AXES`, ``asked`` the field of a policy or of limits.  ``applied``
    is ``full``, ``partial`` or ``none``; ``reason`` says why it is less than full.
    """

    axis: str
    asked: str
    applied: str
    mechanism: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What can be enforced where programs are started, for the user who starts them.

    ``probes``: what was found out, by really doing it; ``failed`` in it says which could not tell.
    """

    uid: int
    kernel: str
    capabilities: Sequence[Capability]
    probes: Mapping[str, Any]

    def of(self, axis: str) -> list[Capability]:
        """Those of one axis."""
        return [one for one in self.capabilities if one.axis == axis]

    def to_dict(self) -> dict[str, object]:
        """The capabilities document."""
        return {
            "schema": schema_name("capabilities"),
            "uid": self.uid,
            "kernel": self.kernel,
            "capabilities": [asdict(one) for one in self.capabilities],
            "probes": dict(self.probes),
        }

    @classmethod
    def from_dict(cls, form: Mapping[str, Any]) -> Capabilities:
        """From a capabilities document.  Raises KeyError, TypeError."""
        names = Capability.__slots__
        told = [Capability(**{name: one[name] for name in names}) for one in form["capabilities"]]
        return cls(form["uid"], form["kernel"], told, form["probes"])
