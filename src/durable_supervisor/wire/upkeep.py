"""The documents of ``backup`` and ``verify``, and of what is inside a backup."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ..model.states import RunState
from ..model.verify import MOST_FINDINGS
from .base import Count, Document, RunId, Seq, Time
from .bundles import MemberForm

_UNSETTLED = "runs that were not over, by what the copy says of each"
_LEFT_OUT = "runs whose logs could not be read, or not to their end, and why; their rows are there"
_NOT_RETRIED = "refused requests that are never tried again in the copy"


class BackupDocument(Document):
    """What backup made."""

    schema_: Literal["durable-supervisor/backup/1"] = Field(alias="schema")
    path: str = Field(description="absolute")
    directory_id: str = Field(description="the copy's own")
    original: str = Field(description="id of the directory that it is a copy of")
    made_at: Time
    runs: Count = Field(description="with their logs")
    collected: Count = Field(description="of which only the row is left, in the original too")
    imported: Count = Field(default=0, description="runs of other directories, copied as they are")
    unsettled: dict[RunId, RunState] = Field(description=_UNSETTLED)
    not_retried: Count = Field(description=_NOT_RETRIED)
    left_out: dict[RunId, str] = Field(description=_LEFT_OUT)
    files: Count
    bytes: Count


class OriginalForm(Document):
    """The directory that a backup is a copy of."""

    directory_id: str
    through: Count = Field(description="serial of the newest run that was copied")


class BackupManifestDocument(Document):
    """``backup.json`` in a backup: what it was when it was made."""

    schema_: Literal["durable-supervisor/backup-manifest/1"] = Field(alias="schema")
    format: Seq
    product: Literal["durable-supervisor"]
    version: str = Field(description="of the product that made it")
    directory_id: str
    original: OriginalForm
    made_at: Time
    made_ns: Count = Field(description="the same, as Unix nanoseconds")
    runs: Count
    collected: Count
    unsettled: dict[RunId, RunState] = Field(description=_UNSETTLED)
    not_retried: Count = Field(description=_NOT_RETRIED)
    left_out: dict[RunId, str] = Field(description=_LEFT_OUT)
    files: dict[str, MemberForm] = Field(description="every other file, by its name in the directory")


class FindingForm(Document):
    """One thing that is not as it should be."""

    severity: Literal["error", "warning", "note"]
    code: str = Field(description="a stable word")
    path: str = Field(description="where")
    run_id: RunId | None
    problem: str = Field(description="for people")
    hint: str = Field(description="what to do, for people")


class VerifyDocument(Document):
    """What verify found."""

    schema_: Literal["durable-supervisor/verify/1"] = Field(alias="schema")
    path: str
    subject: Literal["directory", "backup", "bundle"]
    ok: bool = Field(description="neither errors nor warnings")
    runs: Count = Field(description="whose logs were read")
    collected: Count
    events: Count
    bytes: Count = Field(description="of logs")
    errors: Count
    warnings: Count
    notes: Count
    findings: list[FindingForm] = Field(description=f"the first {MOST_FINDINGS}; all are counted")
