"""What the verbs that operate the service print."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ..model.collecting import MOST_NAMED
from ..model.states import RunState
from .base import Count, Document, OutcomeForm, RunId, Time


class ServeDocument(Document):
    """Printed by ``serve`` once clients may come."""

    schema_: Literal["durable-supervisor/serve/1"] = Field(alias="schema")
    pid: int
    socket: str = Field(description="absolute path of the Unix socket")
    state_dir: str
    version: str


class ServiceDocument(Document):
    """What ``service`` did, or with --dry-run would do."""

    schema_: Literal["durable-supervisor/service/1"] = Field(alias="schema")
    action: Literal["install", "uninstall", "print"]
    path: str = Field(description="of the unit")
    changed: bool = Field(description="false: it was that way already")
    content: str | None = Field(description="the unit, from print and --dry-run")
    ran: list[str] = Field(description="commands of the service manager that were run")
    next: list[str] = Field(description="those that remain to be run by you")


class GcRunForm(Document):
    """A run whose log goes, or went."""

    run_id: RunId
    request_id: str
    state: RunState
    outcome: OutcomeForm | None
    ended_at: Time
    bytes: Count = Field(description="the room that its log takes on the disk")


class GcDocument(Document):
    """What gc would do, or has done."""

    schema_: Literal["durable-supervisor/gc/1"] = Field(alias="schema")
    applied: bool = Field(description="false: a plan, nothing was changed")
    count: Count
    bytes: Count
    runs: list[GcRunForm] = Field(
        description=f"oldest end first, {MOST_NAMED} at the most; count and bytes are of all"
    )
    kept: dict[str, Count] = Field(description="how many stay, by reason")
    left: Count = Field(description="collected runs whose files could not be removed yet")
