"""Who gets a slot: the table, the order of the queue, and the ledger's arithmetic."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import pytest

from durable_supervisor.journal.listing import SlotRow
from durable_supervisor.journal.rows import RunRow
from durable_supervisor.model.errors import ErrorCode, SupervisorError
from durable_supervisor.model.states import RunState
from durable_supervisor.supervisor.slots.slots import (
    Bounds,
    Load,
    Refusal,
    Slots,
    Waiter,
    holds_slot,
    next_in_line,
    rule,
)

BOOT = "this boot"
START, QUEUED = RunState.STARTING, RunState.QUEUED
_serials = itertools.count(1)


@pytest.mark.parametrize(
    ("bounds", "load", "refused", "queued"),
    [
        # bounds (host, owner, queue), load (held, of this owner, queued); without and with `queue`
        ((None, None, None), (9, 9, 9), START, START),
        ((2, None, 1), (1, 0, 0), START, START),
        ((2, None, 1), (1, 0, 1), START, START),  # whoever waits is not eligible, or would hold the slot
        ((2, None, 1), (2, 0, 0), Refusal("host", 2, 2), QUEUED),
        ((2, None, 1), (3, 0, 0), Refusal("host", 2, 3), QUEUED),  # the limit was lowered
        ((2, None, 1), (2, 0, 1), Refusal("host", 2, 2), Refusal("queue", 1, 1)),
        ((2, None, 0), (2, 0, 0), Refusal("host", 2, 2), Refusal("queue", 0, 0)),
        ((2, None, None), (2, 0, 99), Refusal("host", 2, 2), QUEUED),
        ((None, 1, 1), (5, 0, 0), START, START),
        ((None, 1, 1), (5, 1, 0), Refusal("owner", 1, 1), QUEUED),
        ((None, 1, 1), (5, 1, 1), Refusal("owner", 1, 1), Refusal("queue", 1, 1)),
        ((5, 1, 1), (5, 1, 0), Refusal("host", 5, 5), QUEUED),
    ],
)
def test_the_ruling(bounds: Any, load: Any, refused: Any, queued: Any) -> None:
    assert rule(Bounds(*bounds), Load(*load), queue=False) == refused
    assert rule(Bounds(*bounds), Load(*load), queue=True) == queued


@pytest.mark.parametrize(
    ("queue", "waiting", "ruling"),
    [(False, 0, START), (False, 3, START), (True, 0, START), (True, 3, QUEUED)],
)
def test_who_only_passes_puts_nobody_before_those_that_wait(queue: bool, waiting: int, ruling: Any) -> None:
    assert rule(Bounds(), Load(1, 1, waiting), queue=queue, serves_queue=False) == ruling


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_concurrent_runs", 0),
        ("max_concurrent_runs", -1),
        ("max_concurrent_runs", True),
        ("max_runs_per_owner", 0),
        ("max_runs_per_owner", "3"),
        ("max_queued_runs", -1),
        ("max_queued_runs", 1.5),
    ],
)
def test_bounds_are_checked(field: str, value: Any) -> None:
    with pytest.raises(SupervisorError) as caught:
        Bounds(**{field: value})
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert caught.value.details == {"field": field}


def waiter(name: str, owner: str = "a", priority: int = 0, *, told: bool = False) -> Waiter:
    return Waiter(name, (owner, name), 1, next(_serials), priority, told)


@pytest.mark.parametrize(
    ("bounds", "held", "expected"),
    [
        ((1, None), {}, ["told"]),
        ((3, None), {}, ["told", "urgent", "first"]),
        ((None, None), {"a": 50}, ["told", "urgent", "first", "second", "other", "late"]),
        ((4, 1), {"a": 1}, ["other"]),
        ((4, 2), {"a": 1}, ["told", "other"]),
        ((2, 2), {"a": 1, "c": 1}, []),
        ((3, None), {"a": 7}, []),
    ],
)
def test_who_is_next(bounds: Any, held: dict[str, int], expected: list[str]) -> None:
    waiting = [
        waiter("late", priority=-5),
        waiter("first"),
        waiter("second"),
        waiter("urgent", priority=7),
        waiter("other", "b"),
        waiter("told", priority=-9, told=True),
    ]
    chosen = next_in_line(Bounds(*bounds), held, waiting)
    assert [one.run_id for one in chosen] == expected


@pytest.mark.parametrize(
    ("state", "facts", "expected"),
    [
        ("queued", {}, False),
        ("starting", {}, True),
        ("running", {}, True),
        ("stopping", {}, True),
        ("finished", {}, False),
        ("not_started", {}, False),
        ("unknown", {"evidence": {"may_be_alive": True}}, True),
        ("quarantined", {"evidence": {"may_be_alive": True}}, True),
        ("quarantined", {"evidence": {"may_be_alive": False}}, False),
        ("unknown", {"evidence": None}, False),
        ("unknown", {"evidence": {"may_be_alive": True}, "boot_id": "another"}, False),
        ("quarantined", {"evidence": {"may_be_alive": True}, "boot_id": "another"}, False),
        ("unknown", {"evidence": {"may_be_alive": True}, "resolution": "{}"}, False),
    ],
)
def test_what_holds_a_slot(state: str, facts: dict[str, Any], expected: bool) -> None:
    assert holds_slot(slot_row("r", state, **facts), BOOT) is expected


def slot_row(name: str, state: str, owner: str = "a", **facts: Any) -> SlotRow:
    known: dict[str, Any] = {"attempt": 1, "serial": next(_serials), "priority": 0}
    known |= {"shard": "0000", "boot_id": BOOT, "resolution": None, "evidence": None, "stop_requested": False}
    return SlotRow(name, owner, name, RunState(state), **(known | facts))


def run_row(name: str, state: str, owner: str = "a", attempt: int = 1) -> RunRow:
    return RunRow(
        serial=1, run_id=name, shard="0000", owner=owner, request_id=name, state=RunState(state),
        attempt=attempt, argv=[], cwd="/", env_names=[], labels={}, limits={}, completion="leader",
        digests={}, key_id="", nested_in=None, survives_unit_restart=None, created_ns=0, updated_ns=0,
        boot_id=BOOT, worker=None, program=None, reason=None, outcome=None, receipt=None, evidence=None,
        retryable=False, stop_requested=False, resolution=None, log_health=None,
    )  # fmt: skip


def ledger(*bounds: int | None) -> Slots:
    return Slots(Bounds(*bounds), BOOT)


def counts(slots: Slots) -> tuple[int, int]:
    return slots.capacity().held, slots.capacity().queued


def refused(slots: Slots, name: str, owner: str = "a", *, queue: bool = False) -> dict[str, object]:
    before = counts(slots)
    with pytest.raises(SupervisorError) as caught:
        slots.admit((owner, name), 1, queue=queue)
    assert caught.value.code is ErrorCode.CAPACITY_EXHAUSTED
    assert caught.value.retryable
    assert counts(slots) == before
    return caught.value.details


def test_a_reservation_is_given_back() -> None:
    slots = ledger(1, None, 1)
    assert slots.admit(("a", "one"), 1, queue=False) is START
    assert refused(slots, "two") == {"scope": "host", "limit": 1, "held": 1}
    assert slots.admit(("a", "two"), 1, queue=True) is QUEUED
    assert refused(slots, "three", queue=True) == {"scope": "queue", "limit": 1, "held": 1}
    slots.give_back(("a", "two"), 1)
    assert slots.admit(("a", "three"), 1, queue=True) is QUEUED
    slots.give_back(("a", "one"), 1)
    assert counts(slots) == (0, 1)


def test_an_owner_has_a_limit_of_its_own() -> None:
    slots = ledger(3, 1, 4)
    slots.admit(("a", "one"), 1, queue=False)
    assert refused(slots, "two") == {"scope": "owner", "limit": 1, "held": 1}
    slots.admit(("b", "one"), 1, queue=False)
    assert slots.admit(("b", "two"), 1, queue=True) is QUEUED
    slots.note(run_row("one", "finished", "b"))
    assert counts(slots) == (1, 1)


def test_the_queue_is_served_once_a_worker_waits() -> None:
    slots = ledger(1, None, None)
    slots.admit(("a", "one"), 1, queue=False)
    slots.admit(("a", "two"), 1, queue=True)
    slots.note(run_row("one", "finished"))
    assert slots.pick() == []  # its worker is not there yet
    two = Waiter("two", ("a", "two"), 1, 2, 0)
    slots.line_up(two)
    assert slots.pick() == [two]
    assert slots.pick() == []
    assert counts(slots) == (1, 0)
    slots.put_back(two)
    assert counts(slots) == (0, 1)
    assert slots.pick() == [two]
    slots.put_back(two, ready=False)
    assert (slots.pick(), counts(slots)) == ([], (0, 1))
    slots.note(run_row("two", "not_started"))
    assert counts(slots) == (0, 0)
    slots.line_up(two)  # too late: it has left by itself
    assert (slots.pick(), counts(slots)) == ([], (0, 0))


def test_a_slot_that_is_somebodys_turn_is_given_to_no_new_start() -> None:
    slots = ledger(2, 1, None)
    for key in (("a", "one"), ("b", "one")):
        slots.admit(key, 1, queue=False)
    slots.admit(("a", "two"), 1, queue=True)
    two = Waiter("two", ("a", "two"), 1, 2, 0)
    slots.line_up(two)
    slots.note(run_row("one", "finished", "b"))  # free, but not for the owner of the one that waits
    assert slots.admit(("c", "one"), 1, queue=False) is START
    slots.note(run_row("one", "finished"))
    assert refused(slots, "three", "d") == {"scope": "host", "limit": 2, "held": 2}
    assert slots.admit(("a", "three"), 1, queue=True) is QUEUED
    assert slots.pick() == [two]


def test_late_news_of_an_earlier_attempt_frees_nothing() -> None:
    slots = ledger(1, None, 0)
    slots.admit(("a", "one"), 1, queue=False)
    slots.admit(("a", "one"), 2, queue=False)  # the journal has seen its not_started, the ledger not yet
    assert counts(slots) == (1, 0)
    slots.note(run_row("one", "not_started", attempt=1))
    slots.give_back(("a", "one"), 1)
    assert counts(slots) == (1, 0)
    slots.note(run_row("one", "finished", attempt=2))
    assert counts(slots) == (0, 0)


def test_what_the_journal_says_is_loaded() -> None:
    slots = ledger(2, None, 0)
    slots.note(run_row("one", "running"))  # seen while it was opening
    running = [slot_row("one", "running"), slot_row("two", "starting")]
    queued = [slot_row("three", "queued"), slot_row("four", "starting")]
    slots.load(running, queued)
    assert counts(slots) == (2, 2)
    slots.note(run_row("one", "finished"))
    assert [one.run_id for one in slots.pick()] == ["four"]  # let go before, so it goes first


def test_who_only_passes_lets_go_who_was_let_go_before_and_nobody_else() -> None:
    slots = Slots(Bounds(), BOOT, serves_queue=False)
    slots.load([slot_row("one", "running")], [slot_row("two", "queued"), slot_row("three", "starting")])
    assert [one.run_id for one in slots.pick()] == ["three"]
    slots.note(run_row("one", "finished"))
    assert (slots.pick(), counts(slots)) == ([], (1, 1))


def test_parallel_admissions_never_exceed_the_limit() -> None:
    slots, admitted = ledger(5, None, 0), []

    def work(number: int) -> None:
        for turn in range(50):
            key = ("a", f"{number}-{turn}")
            try:
                slots.admit(key, 1, queue=False)
            except SupervisorError:
                continue
            admitted.append(slots.capacity().held)
            slots.give_back(key, 1)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert admitted
    assert max(admitted) <= 5
    assert counts(slots) == (0, 0)
