"""What a machine can enforce."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .base import Axis, Count, Document, Json


class CapabilityForm(Document):
    """What would be enforced of one thing that may be asked for, under a policy."""

    axis: Axis
    asked: str = Field(description="the field of a policy or of limits")
    applied: Literal["full", "partial", "none"]
    mechanism: str | None
    reason: str | None = Field(description="why it is less than full")


class CapabilitiesDocument(Document):
    """What can be enforced where programs are started, for the user who starts them."""

    schema_: Literal["durable-supervisor/capabilities/1"] = Field(alias="schema")
    uid: Count
    kernel: str
    capabilities: list[CapabilityForm]
    probes: Json = Field(description="what was found out by really doing it")
