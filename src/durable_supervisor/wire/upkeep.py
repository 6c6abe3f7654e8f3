"""The documents of ``backup`` and ``verify``, and of what is inside a backup."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ..model.states import RunState
from .base import Count, Document, RunId, Seq, Time
from .bundles import MemberForm

_UNSETTLED = "runs that were not over, by what the copy says of each"
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
    unsettled: dict[RunId, RunState] = Field(description=_UNSETTLED)
    not_retried: Count = Field(description=_NOT_RETRIED)
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
    files: dict[str, MemberForm] = Field(description="every other file, by its name in the directory")
