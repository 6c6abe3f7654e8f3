"""A run as a reader sees it, and its document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from .events import iso_time
from .forms import wall_ns
from .outcome import Outcome
from .schema import schema_name
from .states import RunState

if TYPE_CHECKING:
    from .importing import ImportMark


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One run.  Times are Unix nanoseconds.

    ``outcome`` is set for a finished run, and beside quarantined(cleanup_unconfirmed).
    ``worker`` and ``program`` are identities as logged.  ``head`` is the last seq of
    its log (0 when the log was not looked at); ``live`` are figures of the running tree.
    ``stdin`` (``null``, ``bytes``, ``open``), ``pty`` (columns, rows, term as asked for), ``policy``
    (as `Policy.to_dict`), ``lifetime`` and ``enforcement`` (what it is held to, axis by axis; None
    where it is not confined) are what its log says: None where that was not looked at, or is of an
    older release.  ``imported``: it is another directory's, as its bundle told of it; nothing of it is
    in reach here.
    """

    id: str
    state: RunState
    request_id: str
    owner: str
    attempt: int
    argv: tuple[str, ...]
    cwd: str
    labels: dict[str, str]
    limits: dict[str, object]
    completion: str
    created_ns: int
    updated_ns: int
    outcome: Outcome | None
    program: dict[str, object] | None
    worker: dict[str, object] | None
    receipt: dict[str, object] | None
    reason: str | None
    evidence: dict[str, object] | None
    resolution: dict[str, object] | None
    retryable: bool
    log_health: dict[str, object] | None
    nested_in: str | None
    survives_unit_restart: bool | None
    serial: int
    head: int = 0
    live: dict[str, object] | None = None
    stdin: str | None = None
    pty: dict[str, object] | None = None
    policy: dict[str, object] | None = None
    lifetime: str | None = None
    enforcement: dict[str, object] | None = None
    collected_ns: int | None = None
    imported: ImportMark | None = None

    @property
    def run_id(self) -> str:
        """The same as ``id``, under the name that documents use."""
        return self.id

    def to_dict(self) -> dict[str, object]:
        """The inspect document: see ``docs/schemas``."""
        return {
            "schema": schema_name("inspect"),
            "run_id": self.id,
            "state": self.state.value,
            "request_id": self.request_id,
            "owner": self.owner,
            "attempt": self.attempt,
            "argv": list(self.argv),
            "cwd": self.cwd,
            "labels": self.labels,
            "limits": self.limits,
            "completion": self.completion,
            "created_at": iso_time(self.created_ns),
            "updated_at": iso_time(self.updated_ns),
            "outcome": None if self.outcome is None else self.outcome.to_dict(),
            "program": self.program,
            "worker": self.worker,
            "receipt": self.receipt,
            "reason": self.reason,
            "evidence": self.evidence,
            "resolution": self.resolution,
            "retryable": self.retryable,
            "log_health": self.log_health,
            "head": self.head,
            "live": self.live,
            "stdin": self.stdin,
            "pty": self.pty,
            "policy": self.policy,
            "lifetime": self.lifetime,
            "enforcement": self.enforcement,
            "nested_in": self.nested_in,
            "survives_unit_restart": self.survives_unit_restart,
            "serial": self.serial,
            "collected_at": None if self.collected_ns is None else iso_time(self.collected_ns),
            "imported": None if self.imported is None else self.imported.to_dict(),
        }

    @classmethod
    def from_dict(cls, form: Mapping[str, Any]) -> RunView:
        """From an inspect document; times have its microseconds.  Raises KeyError, TypeError, ValueError."""
        names = {field.name for field in fields(cls)} & set(form)
        told = {name: form[name] for name in names}
        collected, imported = form.get("collected_at"), form.get("imported")
        return cls(
            **{
                **told,
                "id": form["run_id"],
                "state": RunState(form["state"]),
                "argv": tuple(form["argv"]),
                "created_ns": wall_ns(form["created_at"]),
                "updated_ns": wall_ns(form["updated_at"]),
                "collected_ns": None if collected is None else wall_ns(collected),
                "imported": None if imported is None else _mark(imported),
                "outcome": None if form["outcome"] is None else Outcome.from_dict(form["outcome"]),
            }
        )


def _mark(form: Mapping[str, Any]) -> ImportMark:
    from .importing import ImportMark  # most runs are their directory's own

    return ImportMark.from_dict(form)
