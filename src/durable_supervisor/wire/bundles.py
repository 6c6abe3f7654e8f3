"""The documents of bundles: what is inside one, and what making one answers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ..model.states import RunState
from .base import Count, Document, Json, RunId, Seq, Time


class MemberForm(Document):
    """One member's content."""

    size: Count = Field(description="bytes, unpacked")
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class BundleDocument(Document):
    """``manifest.json`` of a bundle."""

    schema_: Literal["durable-supervisor/bundle/1"] = Field(alias="schema")
    format: Seq
    product: Literal["durable-supervisor"]
    version: str = Field(description="of the product that made it")
    run_id: RunId
    shard: str = Field(description="the directory that the log's files are in")
    attempts: Seq = Field(description="the newest attempt's number")
    state: RunState
    open: bool = Field(description="true: it was not over; the log is what there was")
    head: Count = Field(description="the log has at least every event up to this seq")
    members: dict[str, MemberForm] = Field(description="every other member, by its name")


class ResolutionForm(Document):
    """What an operator said about the run."""

    time: Time
    document: Json


class JournalRowsDocument(Document):
    """``journal.json`` of a bundle: what the journal held about the run, times in Unix nanoseconds."""

    schema_: Literal["durable-supervisor/journal-rows/1"] = Field(alias="schema")
    run: Json = Field(description="its row; digests are keyed, and say nothing without the directory's key")
    attempts: list[Json]
    feed: list[Json] = Field(description="feed documents")
    resolutions: list[ResolutionForm]


class ExportDocument(Document):
    """What ``export --json`` prints."""

    schema_: Literal["durable-supervisor/export/1"] = Field(alias="schema")
    run_id: RunId
    state: RunState = Field(description="as of the export")
    output: str = Field(description="the file, as it was given")
    bytes: Count


class ReportDocument(Document):
    """What ``report --json`` prints."""

    schema_: Literal["durable-supervisor/report/1"] = Field(alias="schema")
    run_id: RunId
    state: RunState = Field(description="as of the report")
    output: str = Field(description="the file, as it was given")
    bytes: Count
