"""What the doctor finds."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

Status = Literal["ok", "note", "bad"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at.  ``bad``: runs would be refused or their guarantees would not hold."""

    name: str
    status: Status
    detail: str
    hint: str = ""

    def to_dict(self) -> dict[str, object]:
        """JSON form; the keys are the field names."""
        return asdict(self)
