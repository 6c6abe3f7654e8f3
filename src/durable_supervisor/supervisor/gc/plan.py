"""Which runs go: a pure function of what is there, what is asked, and the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ...journal.collecting import KeptRun
from ...model.states import OPEN_STATES, RunState
from ..imports.imported import Home

if TYPE_CHECKING:
    from ...model.collecting import Criteria

LEAST_AGE: Final = 60.0  # seconds: whoever waited for it has had the time to look at it
_NS: Final = 1_000_000_000


class Sighting(NamedTuple):
    """A run that is not collected.  ``locked``: somebody holds its log's lock.

    ``unreadable``: its files cannot be looked at, and so not be removed either.  ``home``: of an
    imported one.
    """

    run: KeptRun
    bytes: int
    locked: bool
    unreadable: bool = False
    home: Home | None = None


class Plan(NamedTuple):
    """``going``: oldest end first.  ``kept``: how many stay, by reason."""

    going: list[Sighting]
    kept: dict[str, int]


# Whatever is asked for, these stay.  The first that holds is the reason.
_NEVER: Final[tuple[tuple[str, Callable[[Sighting], bool]], ...]] = (
    ("open", lambda seen: seen.run.state in OPEN_STATES),
    ("unknown", lambda seen: seen.run.state is RunState.UNKNOWN),
    ("quarantined", lambda seen: seen.run.state is RunState.QUARANTINED),
    ("retryable", lambda seen: seen.run.may_retry),
    ("locked", lambda seen: seen.locked),
    ("unreadable", lambda seen: seen.unreadable),
)
REASONS: Final = (*(reason for reason, _ in _NEVER), "other_label", "newest", "young", "fits")


def plan(there: Sequence[Sighting], asked: Criteria, now_ns: int) -> Plan:
    """Every run that is not collected, in any order -> which of them go, and why the others stay."""
    kept: Counter[str] = Counter()
    over: list[Sighting] = []
    for seen in there:
        reason = _stays(seen, asked)
        if reason is None:
            over.append(seen)
        else:
            kept[reason] += 1
    over.sort(key=lambda seen: (seen.run.ended_ns, seen.run.serial))
    kept["newest"] = min(asked.keep or 0, len(over))
    going: list[Sighting] = []
    total = sum(seen.bytes for seen in there)
    for seen in over[: len(over) - kept["newest"]]:
        if _age(seen, now_ns) <= max(LEAST_AGE, asked.older_than or 0.0):
            kept["young"] += 1
        elif asked.max_bytes is not None and total <= asked.max_bytes:
            kept["fits"] += 1
        else:
            going.append(seen)
            total -= seen.bytes
    return Plan(going, {reason: kept[reason] for reason in REASONS if kept[reason]})


def _stays(seen: Sighting, asked: Criteria) -> str | None:
    for reason, holds in _NEVER:
        if holds(seen):
            return reason
    if asked.label is not None and seen.run.labels.get(asked.label[0]) != asked.label[1]:
        return "other_label"
    return None


def _age(seen: Sighting, now_ns: int) -> float:
    """Seconds since its end; below 0 where the clock was set back, which is young."""
    return (now_ns - seen.run.ended_ns) / _NS
