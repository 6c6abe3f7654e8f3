"""Which runs go: the plan is a pure function, and this its table."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from durable_supervisor.journal.collecting import KeptRun
from durable_supervisor.model.collecting import Criteria
from durable_supervisor.model.states import RunState
from durable_supervisor.supervisor.gc.plan import LEAST_AGE, REASONS, Sighting, plan

S = RunState
NOW = 10**18
DAY = 86400.0
_serials = itertools.count(1)


def seen(
    state: RunState = S.FINISHED,
    *,
    days: float = 10,
    size: int = 100,
    locked: bool = False,
    unreadable: bool = False,
    may_retry: bool = False,
    **labels: str,
) -> Sighting:
    serial = next(_serials)
    ended = NOW - int(days * DAY * 1e9)
    run = KeptRun(
        serial, f"run{serial:013d}", f"r-{serial}", "0000", state, 1, may_retry, None, dict(labels), ended
    )
    return Sighting(run, size, locked, unreadable)


def going(there: list[Sighting], **asked: Any) -> list[int]:
    """Which of them go, by their place in the list."""
    found = plan(there, Criteria(**asked), NOW)
    assert len(found.going) + sum(found.kept.values()) == len(there)
    assert set(found.kept) <= set(REASONS)
    return [there.index(one) for one in found.going]


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (seen(S.QUEUED), "open"),
        (seen(S.STARTING), "open"),
        (seen(S.RUNNING), "open"),
        (seen(S.STOPPING), "open"),
        (seen(S.UNKNOWN), "unknown"),
        (seen(S.QUARANTINED), "quarantined"),
        (seen(S.NOT_STARTED, may_retry=True), "retryable"),
        (seen(locked=True), "locked"),
        (seen(unreadable=True), "unreadable"),
        (seen(days=LEAST_AGE / DAY), "young"),
        (seen(days=0), "young"),
        (seen(days=-5), "young"),  # the clock was set back
        (seen(S.FINISHED), None),
        (seen(S.NOT_STARTED), None),
    ],
)
def test_what_never_goes_whatever_is_asked(one: Sighting, reason: str | None) -> None:
    for asked in (Criteria(keep=0), Criteria(older_than=0), Criteria(max_bytes=0)):
        found = plan([one], asked, NOW)
        assert found.kept == ({} if reason is None else {reason: 1})
        assert found.going == ([one] if reason is None else [])


def test_by_age() -> None:
    assert going([seen(days=1), seen(days=3), seen(days=2)], older_than=1.5 * DAY) == [1, 2]
    assert going([seen(days=2)], older_than=2 * DAY) == []


def test_by_number_the_newest_stay() -> None:
    there = [seen(days=1), seen(days=3), seen(days=2), seen(days=9, state=S.UNKNOWN)]
    assert going(there, keep=1) == [1, 2]
    assert going(there, keep=3) == []
    assert going(there, keep=99) == []


def test_a_young_one_is_among_the_newest() -> None:
    assert going([seen(days=0), seen(days=5), seen(days=6)], keep=1) == [2, 1]


def test_by_size_the_oldest_go_until_the_rest_fits() -> None:
    there = [seen(days=1, size=50), seen(days=3, size=100), seen(days=2, size=100)]
    assert going(there, max_bytes=250) == []
    assert going(there, max_bytes=249) == [1]
    assert going(there, max_bytes=100) == [1, 2]
    assert going(there, max_bytes=0) == [1, 2, 0]
    # What must stay takes room as well.
    assert going([*there, seen(S.RUNNING, size=1000)], max_bytes=1000) == [1, 2, 0]


def test_by_label() -> None:
    there = [seen(team="a"), seen(team="b"), seen()]
    assert going(there, label=("team", "a")) == [0]
    assert going(there, label=("team", "a"), keep=1) == []
    assert plan(there, Criteria(label=("team", "a")), NOW).kept == {"other_label": 2}


def test_all_that_is_asked_must_agree() -> None:
    there = [seen(days=1), seen(days=2), seen(days=3), seen(days=4, team="a")]
    assert going(there, older_than=1.5 * DAY, keep=2) == [3, 2]
    assert going(there, older_than=3.5 * DAY, keep=1) == [3]
    assert going(there, older_than=1.5 * DAY, max_bytes=300) == [3]
    assert going(there, older_than=3.5 * DAY, max_bytes=100) == [3]
    assert going(there, keep=0, label=("team", "a")) == [3]
