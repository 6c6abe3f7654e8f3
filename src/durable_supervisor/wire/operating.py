"""What the verbs that operate the service print."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .base import Document


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
