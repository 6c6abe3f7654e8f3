"""What an audit for secrets answers: where they are, never what."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .base import Count, Document, RunId, Seq


class AuditPlaceForm(Document):
    """One place that holds a secret."""

    secret: Seq = Field(description="which of those that were given, from 1")
    form: Literal["plain", "base64", "hex", "url", "json", "terminal"] = Field(
        description="as what it stands there; terminal: with CR LF for LF"
    )
    where: Literal["output", "event", "header", "journal", "file"]
    field: str = Field(description="the stream, the path in the document, or the name of the file")
    seq: Seq | None = Field(description="of the event, or of that in which it begins")
    count: Seq


class AuditDocument(Document):
    """What ``audit --json`` prints."""

    schema_: Literal["durable-supervisor/audit/1"] = Field(alias="schema")
    run_id: RunId
    clean: bool = Field(description="all was searched, and nothing found")
    secrets: Seq = Field(description="how many were looked for")
    events: Count = Field(description="how many were searched")
    bytes: Count = Field(description="how many were searched, of events, rows and files")
    found: Count = Field(description="of all places together")
    places: list[AuditPlaceForm] = Field(description="the first thousand of them")
    problems: list[str] = Field(description="what could not be searched")
