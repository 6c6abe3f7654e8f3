"""What `verify` answers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from .schema import schema_name

Severity = Literal["error", "warning", "note"]
Subject = Literal["directory", "backup", "bundle"]
MOST_FINDINGS = 1000  # that a report names; all are counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is not as it should be.

    ``error``: something is lost, changed, contradictory or open to others.  ``warning``: what there is
    is true, but not all that there should be.  ``note``: worth knowing, nothing to repair.
    ``code`` is a stable word, ``path`` where it was found, ``hint`` what to do.
    """

    severity: Severity
    code: str
    path: str
    problem: str
    hint: str
    run_id: str | None = None

    def to_dict(self) -> dict[str, object]:
        return {
            "severity": self.severity,
            "code": self.code,
            "path": self.path,
            "run_id": self.run_id,
            "problem": self.problem,
            "hint": self.hint,
        }


@dataclass(slots=True)
class VerifyReport:
    """``runs``, ``events`` and ``bytes`` of logs: how much was looked at."""

    path: str
    subject: Subject
    runs: int = 0
    collected: int = 0
    events: int = 0
    bytes: int = 0
    findings: list[Finding] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def ok(self) -> bool:
        """Neither errors nor warnings."""
        return not (self.counts["error"] or self.counts["warning"])

    def add(
        self, severity: Severity, code: str, path: str, problem: str, hint: str, run_id: str | None = None
    ) -> None:
        """One more; the first `MOST_FINDINGS` are named."""
        self.counts[severity] += 1
        if len(self.findings) < MOST_FINDINGS:
            found = Finding(
                severity=severity, code=code, path=path, problem=problem, hint=hint, run_id=run_id
            )
            self.findings.append(found)

    def merge(self, part: VerifyReport) -> None:
        """Add what was looked at and found in a part."""
        self.runs += part.runs
        self.events += part.events
        self.bytes += part.bytes
        self.counts += part.counts
        self.findings += part.findings[: MOST_FINDINGS - len(self.findings)]

    def to_dict(self) -> dict[str, object]:
        """The verify document."""
        return {
            "schema": schema_name("verify"),
            "path": self.path,
            "subject": self.subject,
            "ok": self.ok,
            "runs": self.runs,
            "collected": self.collected,
            "events": self.events,
            "bytes": self.bytes,
            "errors": self.counts["error"],
            "warnings": self.counts["warning"],
            "notes": self.counts["note"],
            "findings": [finding.to_dict() for finding in self.findings],
        }
