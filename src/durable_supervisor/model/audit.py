"""What `audit` answers: where a run's records hold a secret, and never the secret."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .errors import invalid
from .schema import schema_name
from .secrets import MIN_SECRET_BYTES

AUDIT_PAGE = 1000  # events at a time
MOST_PLACES = 1000  # that a report names; all are counted


@dataclass(frozen=True, slots=True)
class AuditPlace:
    """``secret``: which of those given, from 1.  ``form``: as what it stands there (`disguises.FORMS`).

    ``where``: ``output`` (``field`` is the stream), ``event``, ``header`` or ``journal`` (``field`` is a path
    in its document), or ``file`` (``field`` is a file's name).  ``seq``: of the event, or of that in which
    it begins.
    """

    secret: int
    form: str
    where: str
    field: str
    seq: int | None
    count: int

    def to_dict(self) -> dict[str, object]:
        return {
            "secret": self.secret,
            "form": self.form,
            "where": self.where,
            "field": self.field,
            "seq": self.seq,
            "count": self.count,
        }


@dataclass(frozen=True, slots=True)
class AuditReport:
    """``found`` counts; ``places`` has the first of them, `MOST_PLACES` at the most.

    ``events`` and ``bytes``: how much was searched.  ``problems``: what could not be.
    """

    run_id: str
    secrets: int
    events: int
    bytes: int
    found: int
    places: tuple[AuditPlace, ...]
    problems: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """All was searched, and nothing found."""
        return not self.found and not self.problems

    def to_dict(self) -> dict[str, object]:
        """The audit document."""
        return {
            "schema": schema_name("audit"),
            "run_id": self.run_id,
            "clean": self.clean,
            "secrets": self.secrets,
            "events": self.events,
            "bytes": self.bytes,
            "found": self.found,
            "places": [place.to_dict() for place in self.places],
            "problems": list(self.problems),
        }


def checked_secrets(secrets: Sequence[str | bytes]) -> list[bytes]:
    """As bytes.  Raises ``INVALID_REQUEST``, without naming a value."""
    if isinstance(secrets, str | bytes) or not isinstance(secrets, Sequence) or not secrets:
        raise invalid("secrets", "must be a list of strings or bytes, one at the least")
    found = []
    for secret in secrets:
        if not isinstance(secret, str | bytes):
            raise invalid("secrets", "must be a list of strings or bytes")
        value = secret.encode("utf-8", "surrogateescape") if isinstance(secret, str) else secret
        if len(value) < MIN_SECRET_BYTES:
            problem = f"has one of less than {MIN_SECRET_BYTES} bytes"
            raise invalid("secrets", problem, "so short a text would be found by chance")
        found.append(value)
    return found
