"""The documents that ``--json`` prints, as pydantic models, by name.

``SCHEMAS[name]`` is the model, `validate` checks a document against it and
`json_schema` gives the published form.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import BaseModel, Field

from ..model.errors import ErrorCode, Phase
from ..model.request import Lifetime
from ..model.schema import schema_name
from ..model.states import RunState, Trigger
from .audit import AuditDocument
from .base import (
    Axis,
    AxisReport,
    Completion,
    Count,
    Document,
    Identity,
    Json,
    LimitsForm,
    Open,
    OutcomeForm,
    PolicyForm,
    PtyForm,
    RunId,
    Seq,
    Side,
    Time,
)
from .bundles import BundleDocument, ExportDocument, JournalRowsDocument, ReportDocument
from .capabilities import CapabilitiesDocument
from .details import Receipt
from .events import EventDocument
from .operating import GcDocument, ImportDocument, InfoDocument, ServeDocument, ServiceDocument
from .upkeep import BackupDocument, BackupManifestDocument, VerifyDocument


class StartDocument(Document):
    """The durable answer to ``start``."""

    schema_: Literal["durable-supervisor/start/1"] = Field(alias="schema")
    run_id: RunId
    state: RunState
    request_id: str
    attempt: Seq
    admission: Literal["new", "existing", "retry"]
    nested_in: RunId | None = Field(description="the run that this one was started inside of")
    survives_unit_restart: bool | None = Field(
        description="false: systemd would kill it with the unit it was started in; null: not known"
    )
    reason: str | None = Field(description="why it is not_started, unknown or quarantined already, else null")


class ImportedForm(Document):
    """Where an imported run comes from."""

    directory_id: str | None = Field(description="of the directory that ran it; null: its bundle has no log")
    imported_at: Time
    by_uid: Count
    version: str = Field(description="of the product that exported it")
    sha256: str = Field(description="of the bundle")


class InspectDocument(Document):
    """Everything known about one run."""

    schema_: Literal["durable-supervisor/inspect/1"] = Field(alias="schema")
    run_id: RunId
    state: RunState
    request_id: str
    owner: str
    attempt: Count
    argv: list[str]
    cwd: str
    labels: dict[str, str]
    limits: LimitsForm
    completion: Completion
    created_at: Time
    updated_at: Time
    outcome: OutcomeForm | None
    program: Identity | None
    worker: Identity | None = Field(description="who had it; maybe at another run once it is over")
    receipt: Json | None = Field(description="see the receipt schema; fewer fields where incomplete")
    evidence: Json | None = Field(description="what the verdict rests on")
    resolution: Json | None = Field(description="an operator's word, if there is one")
    retryable: bool = Field(description="true only with proof that user code never ran")
    reason: str | None
    log_health: Json | None
    head: Count | None = Field(description="seq of the newest event")
    live: Json | None = Field(description="CPU, memory and tree while it runs")
    nested_in: RunId | None
    survives_unit_restart: bool | None
    serial: Seq = Field(description="in order of admission; pass it as before of list")
    stdin: Literal["null", "bytes", "open"] | None = Field(description="null: not known")
    pty: PtyForm | None = Field(description="null: pipes, or not known")
    policy: PolicyForm | None = Field(default=None, description="null: none, or not known")
    lifetime: Lifetime | None = Field(default=None, description="null: not known")
    enforcement: dict[Axis, AxisReport] | None = Field(
        default=None, description="what it is held to; null: it is not confined, or not known"
    )
    collected_at: Time | None = Field(
        default=None, description="since when its log is gone, and its words with it; null: it is kept"
    )
    imported: ImportedForm | None = Field(
        default=None, description="another directory's run, as its bundle told of it; null: a run of this one"
    )


class RunSummary(Document):
    """One line of ``list``."""

    run_id: RunId
    state: RunState
    request_id: str
    attempt: Count
    argv: list[str]
    labels: dict[str, str]
    created_at: Time
    updated_at: Time
    outcome: OutcomeForm | None
    reason: str | None
    collected_at: Time | None = Field(default=None, description="since when its log is gone")
    imported: ImportedForm | None = Field(default=None, description="null: a run of this directory")


class ListDocument(Document):
    """Runs, newest first."""

    schema_: Literal["durable-supervisor/list/1"] = Field(alias="schema")
    runs: list[RunSummary] | list[InspectDocument] = Field(
        description="summaries; whole inspect documents where the service was asked with detail=full"
    )
    next_before: int | None = Field(description="pass as before for the next page; null at the end")


class FeedDocument(Document):
    """One change of one run's state, one line of ``feed --json``, in the order of commits."""

    position: Seq = Field(description="counts from 1 over the whole state directory; pass it as after")
    time: Time
    run_id: RunId
    attempt: Count
    state: RunState
    trigger: Trigger | Literal["admit", "recover"]
    reason: str | None


class FeedPageDocument(Document):
    """What the service answers to ``feed``."""

    schema_: Literal["durable-supervisor/feed-page/1"] = Field(alias="schema")
    entries: list[FeedDocument]
    next_after: Count = Field(description="pass as after for the next page")


class PageDocument(Document):
    """What the service answers to ``events``."""

    schema_: Literal["durable-supervisor/page/1"] = Field(alias="schema")
    run_id: RunId
    events: list[EventDocument]
    next_after: Count = Field(description="pass as after for the next page")
    head: Count = Field(description="seq of the newest event")
    generation: Count = Field(description="rises when a repair may have lost events that readers saw")
    end: bool = Field(description="true: the run is over, and all of it is delivered")


class StopDocument(Document):
    """The durable answer to ``stop``."""

    schema_: Literal["durable-supervisor/stop/1"] = Field(alias="schema")
    run_id: RunId
    state: RunState
    control_id: str | None
    result: Literal["stopping", "already_stopping", "already_ended", "not_started"]
    confirmed: bool = Field(description="true: it is over, and nothing of it is left running")
    outcome: OutcomeForm | None


class ControlDocument(Open):
    """The durable answer to ``signal``, ``resize`` or one write to a stdin.  More fields belong to the op."""

    schema_: Literal["durable-supervisor/control/1"] = Field(alias="schema")
    run_id: RunId
    control_id: str
    op: Literal["signal", "stdin", "close_stdin", "resize"]
    result: str
    seq: Seq = Field(description="of its control.applied event")
    signal: int | None = Field(default=None, description="of a signal: its number")
    pids: list[int] | None = Field(default=None, description="of a signal: whom it reached")
    bytes: Count | None = Field(default=None, description="of a stdin write: how many reached the pipe")
    columns: Side | None = Field(default=None, description="of a resize")
    rows: Side | None = Field(default=None, description="of a resize")


class WriteStdinDocument(Document):
    """All of what one ``write-stdin`` has written."""

    schema_: Literal["durable-supervisor/write-stdin/1"] = Field(alias="schema")
    run_id: RunId
    bytes: Count
    eof: bool


class StartRequestDocument(Document):
    """What ``start --dry-run`` would ask for; names of variables, never their values."""

    schema_: Literal["durable-supervisor/start-request/1"] = Field(alias="schema")
    dry_run: Literal[True]
    request_id: str | None = Field(description="null: one would be generated")
    argv: list[str]
    cwd: str | None
    env: list[str]
    secret_env: list[str]
    inherit_env: list[str]
    stdin: Literal["open"] | dict[Literal["bytes"], int] | None
    pty: PtyForm | None
    limits: LimitsForm
    completion: Completion
    labels: dict[str, str]
    policy: PolicyForm | None = None
    lifetime: Lifetime | None = None


class ReconcileDocument(Document):
    """What one pass over the open and quarantined runs came to."""

    schema_: Literal["durable-supervisor/reconcile/1"] = Field(alias="schema")
    judged: Count
    changed: dict[RunId, RunState]


class RecoverConflict(Document):
    """A log that the journal could not take over: it claims what another has, or lost its header.

    It is kept as it is.
    """

    run_id: RunId
    problem: str
    other_run_id: RunId | None


class RecoverDocument(Document):
    """What was rebuilt from the logs, as run ids."""

    schema_: Literal["durable-supervisor/recover/1"] = Field(alias="schema")
    added: list[RunId]
    advanced: list[RunId] = Field(description="known, but an older attempt of it")
    kept: list[RunId]
    conflicts: list[RecoverConflict]
    damaged_tombstones: Count = Field(
        default=0, description="lines of collected.log that cannot be read: request ids that nobody knows"
    )
    old_journal: str | None = Field(description="where an unusable journal was set aside")


class CheckForm(Document):
    """One thing that the doctor looked at."""

    name: str
    status: Literal["ok", "note", "bad"]
    detail: str
    hint: str


class DoctorDocument(Document):
    """Is this machine, and this state directory, fit?"""

    schema_: Literal["durable-supervisor/doctor/1"] = Field(alias="schema")
    healthy: bool
    state_dir: str
    checks: list[CheckForm]


class ReceiptDocument(Receipt):
    """The receipt of a run: the detail of its ``run.finished`` event."""


class ErrorForm(Document):
    """A failure: code branches on ``code``, people read the rest."""

    code: ErrorCode
    message: str
    phase: Phase
    retryable: bool = Field(description="true: sending the same again is safe and may succeed")
    hint: str
    details: Json


class ErrorDocument(Document):
    """What ``--json`` prints on stderr instead of a traceback."""

    error: ErrorForm


SCHEMAS: dict[str, type[BaseModel]] = {
    "audit": AuditDocument,
    "backup": BackupDocument,
    "backup-manifest": BackupManifestDocument,
    "bundle": BundleDocument,
    "capabilities": CapabilitiesDocument,
    "control": ControlDocument,
    "doctor": DoctorDocument,
    "error": ErrorDocument,
    "event": EventDocument,
    "export": ExportDocument,
    "feed": FeedDocument,
    "feed-page": FeedPageDocument,
    "gc": GcDocument,
    "import": ImportDocument,
    "info": InfoDocument,
    "inspect": InspectDocument,
    "journal-rows": JournalRowsDocument,
    "list": ListDocument,
    "page": PageDocument,
    "receipt": ReceiptDocument,
    "reconcile": ReconcileDocument,
    "recover": RecoverDocument,
    "report": ReportDocument,
    "serve": ServeDocument,
    "service": ServiceDocument,
    "start": StartDocument,
    "start-request": StartRequestDocument,
    "stop": StopDocument,
    "verify": VerifyDocument,
    "write-stdin": WriteStdinDocument,
}


def validate(name: str, document: object) -> None:
    """Raise ValueError (pydantic's) unless ``document`` is what the schema ``name`` says, and no more."""
    # Undecodable bytes of argv come as lone surrogates, which no strict JSON parser takes.
    text = json.dumps(document, allow_nan=False, ensure_ascii=False).encode("utf-8", "replace")
    SCHEMAS[name].model_validate_json(text)


def json_schema(name: str) -> dict[str, Any]:
    """The published JSON Schema (2020-12).  Open: later versions may add fields."""
    schema = tidied(SCHEMAS[name].model_json_schema(by_alias=True, mode="validation"))
    assert isinstance(schema, dict)  # noqa: S101
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:{schema_name(name).replace('/', ':')}",
        "title": name,
        **schema,
    }


def tidied(schema: object, *, closed: bool = False) -> object:
    """Without pydantic's titles made of field names, and, unless ``closed``, open to new fields."""
    if isinstance(schema, list):
        return [tidied(value, closed=closed) for value in schema]
    if not isinstance(schema, dict):
        return schema
    dropped = {"title"} if closed else {"title", "additionalProperties"}
    return {
        key: {name: tidied(value, closed=closed) for name, value in content.items()}
        if key in ("properties", "$defs")
        else tidied(content, closed=closed)
        for key, content in schema.items()
        if not (key in dropped and isinstance(content, str | bool))
    }
