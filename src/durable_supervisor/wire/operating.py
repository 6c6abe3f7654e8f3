"""The service: what the verbs that operate it print, and what it says of itself."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ..model.collecting import MOST_NAMED
from ..model.importing import ImportAdmission
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


class CallerForm(Document):
    """Who the service takes the client for."""

    principal: str
    owner: str
    namespace: str


class ServiceLimits(Document):
    """What the service takes at most; null means unbounded."""

    max_body_bytes: Count
    max_page: Count
    max_connections: Count
    max_concurrent_runs: Count | None
    max_runs_per_owner: Count | None
    max_queued_runs: Count | None


class ServiceRuns(Document):
    """Runs of all owners; null for a caller who is no operator."""

    held: Count | None = Field(description="runs that hold a slot")
    queued: Count | None


class InfoDocument(Document):
    """What the service says of itself."""

    schema_: Literal["durable-supervisor/info/1"] = Field(alias="schema")
    product: Literal["durable-supervisor"]
    version: str
    api_versions: list[int]
    phase: Literal["accepting", "draining"] = Field(description="draining: nothing more is started")
    kind: Literal["daemon", "embedded"] = Field(
        description="daemon: a process for this alone, which comes back when it is restarted; "
        "embedded: an application serves beside its own work"
    )
    pid: Count
    state_dir: str
    directory_id: str
    started_at: Time
    caller: CallerForm
    limits: ServiceLimits
    runs: ServiceRuns


class GcRunForm(Document):
    """A run whose log goes, or went."""

    run_id: RunId
    request_id: str
    state: RunState
    outcome: OutcomeForm | None
    ended_at: Time = Field(description="of an imported run: when it was imported")
    bytes: Count = Field(description="the room that its log takes on the disk")
    imported: bool = Field(default=False, description="another directory's: all that is here of it goes")


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


class ImportDocument(Document):
    """What became of a bundle."""

    schema_: Literal["durable-supervisor/import/1"] = Field(alias="schema")
    bundle: str = Field(description="absolute path")
    run_id: RunId
    admission: ImportAdmission = Field(
        description="already: this run was imported before; own: it is a run of this very directory, "
        "and nothing was done"
    )
    state: RunState
    directory_id: str | None = Field(description="of the directory that ran it; null: its bundle has no log")
