"""What `start` answers with: apart from the other answers, which a start does not load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .named_tuple import NamedTuple
from .schema import schema_name
from .states import RunState


class Run(NamedTuple):
    """The durable answer to `start`.  ``admission``: ``new``, ``existing`` or ``retry``.

    ``reason``: why it is not_started, unknown or quarantined already.
    """

    id: str
    state: RunState
    request_id: str
    attempt: int
    admission: str
    nested_in: str | None = None
    survives_unit_restart: bool | None = None
    reason: str | None = None

    def to_dict(self) -> dict[str, object]:
        """The start document."""
        return {
            "schema": schema_name("start"),
            "run_id": self.id,
            "state": self.state.value,
            "request_id": self.request_id,
            "attempt": self.attempt,
            "admission": self.admission,
            "nested_in": self.nested_in,
            "survives_unit_restart": self.survives_unit_restart,
            "reason": self.reason,
        }

    @classmethod
    def from_dict(cls, form: Mapping[str, Any]) -> Run:
        """From a start document.  Raises KeyError, ValueError."""
        return cls(
            form["run_id"],
            RunState(form["state"]),
            form["request_id"],
            form["attempt"],
            form["admission"],
            form["nested_in"],
            form["survives_unit_restart"],
            form.get("reason"),
        )
