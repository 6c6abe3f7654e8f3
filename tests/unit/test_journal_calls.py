"""Which calls of a journal share the next transaction."""

from __future__ import annotations

import asyncio

import pytest

from durable_supervisor.journal.answer import Answer
from durable_supervisor.journal.calls import (
    CROWD,
    CROWD_SECONDS,
    FEW,
    GATHER_SECONDS,
    MAX_BATCH,
    PATIENCE_SECONDS,
    Call,
    Calls,
)

NOW = 100.0
LATER = NOW + PATIENCE_SECONDS


@pytest.fixture
async def calls() -> Calls:
    return Calls()


def add(calls: Calls, count: int, *, patient: bool = False) -> list[Call]:
    loop = asyncio.get_running_loop()
    added = [Call(lambda conn: None, True, patient, Answer(loop), NOW, NOW) for _ in range(count)]
    for call in added:
        calls.add(call)
    return added


async def test_pressing_ones_share_a_transaction(calls: Calls) -> None:
    added = add(calls, MAX_BATCH + 1)
    assert calls.press(NOW)
    assert calls.take(NOW) == added[:-1]
    assert calls.take(NOW) == added[-1:]
    assert not calls.press(NOW)
    assert calls.take(NOW) == []


async def test_one_that_comes_alone_takes_no_patient_ones_along(calls: Calls) -> None:
    patient = add(calls, FEW, patient=True)
    [alone] = add(calls, 1)
    assert calls.take(NOW) == [alone]
    assert not calls.press(NOW)
    assert calls.enough
    assert calls.patience_ends == LATER
    assert calls.take(NOW) == patient, "the transaction is theirs"
    assert calls.patience_ends is None


async def test_a_few_that_have_waited_long_enough_go_with_it(calls: Calls) -> None:
    patient = add(calls, FEW + 1, patient=True)
    [alone] = add(calls, 1)
    assert calls.take(LATER) == [alone, *patient[:FEW]]


async def test_several_take_all_along(calls: Calls) -> None:
    patient = add(calls, MAX_BATCH, patient=True)
    several = add(calls, 2)
    assert calls.take(NOW) == [*several, *patient[:-2]]
    assert calls.take(NOW) == patient[-2:]


async def test_however_many_press_those_that_have_waited_long_enough_get_their_turn(calls: Calls) -> None:
    patient = add(calls, MAX_BATCH, patient=True)
    pressing = add(calls, 2 * MAX_BATCH)
    half = MAX_BATCH // 2
    assert calls.take(NOW) == pressing[:MAX_BATCH]
    assert calls.take(LATER) == [*pressing[MAX_BATCH : MAX_BATCH + half], *patient[:half]]
    assert calls.take(LATER) == [*pressing[MAX_BATCH + half :], *patient[half:]]


async def test_one_that_is_late_takes_no_more_than_its_place_from_those_that_press(calls: Calls) -> None:
    [late] = add(calls, 1, patient=True)
    pressing = add(calls, MAX_BATCH)
    assert calls.take(LATER) == [*pressing[:-1], late]


async def test_where_many_patient_ones_wait_more_of_them_share_a_transaction(calls: Calls) -> None:
    add(calls, 64 * FEW, patient=True)
    sizes = []
    while batch := calls.take(NOW):
        sizes.append(len(batch) // FEW)
    assert sizes == [32, 16, 8, 4, 2, 1, 1]


async def test_in_a_hurry_nobody_is_patient(calls: Calls) -> None:
    patient = add(calls, 3 * FEW, patient=True)
    calls.hurry()
    assert calls.press(NOW)
    [alone] = add(calls, 1)
    assert calls.take(NOW) == [alone, *patient]
    later = add(calls, 1, patient=True)
    assert not calls.press(NOW), "it was for those who waited"
    assert calls.take(NOW) == later


async def test_a_hurry_without_anybody_is_none(calls: Calls) -> None:
    calls.hurry()
    add(calls, 1, patient=True)
    assert not calls.press(NOW)


async def test_calls_that_were_not_done_are_the_first_again(calls: Calls) -> None:
    patient, pressing = add(calls, 2, patient=True), add(calls, 2)
    taken = calls.take(NOW)
    later = add(calls, 1)
    calls.put_back(taken)
    assert calls.take(NOW) == [*pressing, *later, *patient]


async def test_a_cancelled_call_is_dropped_and_stands_for_nobody(calls: Calls) -> None:
    patient = add(calls, 1, patient=True)
    for call in [*add(calls, 3), *add(calls, FEW, patient=True)]:
        call.answer.cancel()
    assert calls.take(NOW) == patient
    assert calls.take(NOW) == []


def crowd(calls: Calls, count: int) -> None:
    """That many have just shared a transaction."""
    add(calls, count)
    assert len(calls.take(NOW)) == count


async def test_the_first_of_a_crowd_waits_for_half_of_it(calls: Calls) -> None:
    crowd(calls, 2 * CROWD)
    add(calls, CROWD - 1)
    assert not calls.press(NOW)
    assert calls.gathering_ends == NOW + GATHER_SECONDS
    add(calls, 1)
    assert calls.press(NOW)


async def test_and_not_for_long(calls: Calls) -> None:
    crowd(calls, CROWD)
    add(calls, 1)
    assert not calls.press(NOW)
    assert calls.press(NOW + GATHER_SECONDS)


async def test_of_a_few_nobody_waits(calls: Calls) -> None:
    crowd(calls, CROWD - 1)
    add(calls, 1)
    assert calls.press(NOW)


async def test_a_crowd_of_long_ago_is_none(calls: Calls) -> None:
    crowd(calls, CROWD)
    [alone] = add(calls, 1)
    assert calls.press(NOW + CROWD_SECONDS)
    assert calls.take(NOW + CROWD_SECONDS) == [alone]


async def test_after_some_that_came_alone_nobody_waits(calls: Calls) -> None:
    crowd(calls, 2 * CROWD)
    waited = []
    for _ in range(CROWD):
        add(calls, 1)
        waited.append(not calls.press(NOW))
        calls.take(NOW)
    assert waited[0]
    assert not waited[-1]


async def test_nobody_gathers_in_a_hurry(calls: Calls) -> None:
    crowd(calls, CROWD)
    add(calls, 1)
    add(calls, 1, patient=True)
    calls.hurry()
    assert calls.press(NOW)


async def test_patient_ones_are_no_crowd(calls: Calls) -> None:
    add(calls, CROWD, patient=True)
    while calls.take(NOW):
        pass
    [alone] = add(calls, 1)
    assert calls.press(NOW)
    assert calls.take(NOW) == [alone]


async def test_one_that_would_go_by_itself_need_not_queue(calls: Calls) -> None:
    assert calls.may_bypass(NOW)
    crowd(calls, CROWD - 1)
    add(calls, FEW, patient=True)
    assert calls.may_bypass(NOW)
    assert not calls.may_bypass(LATER), "those that are late go along"
    add(calls, 1)
    assert not calls.may_bypass(NOW), "who came before goes first"


async def test_nobody_passes_a_crowd_or_a_hurry(calls: Calls) -> None:
    crowd(calls, CROWD)
    assert not calls.may_bypass(NOW)
    add(calls, 1)
    assert len(calls.take(NOW)) == 1
    assert calls.may_bypass(NOW), "there is none any more"
    add(calls, 1, patient=True)
    calls.hurry()
    assert not calls.may_bypass(NOW)
