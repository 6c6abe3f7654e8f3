"""Which calls of a journal share the next transaction."""

from __future__ import annotations

import asyncio

import pytest

from durable_supervisor.journal.calls import FEW, MAX_BATCH, PATIENCE_SECONDS, Call, Calls

NOW = 100.0
LATER = NOW + PATIENCE_SECONDS


@pytest.fixture
async def calls() -> Calls:
    return Calls()


def add(calls: Calls, count: int, *, patient: bool = False) -> list[Call]:
    loop = asyncio.get_running_loop()
    added = [Call(lambda conn: None, True, patient, loop.create_future(), NOW, NOW) for _ in range(count)]
    for call in added:
        calls.add(call)
    return added


async def test_pressing_ones_share_a_transaction(calls: Calls) -> None:
    added = add(calls, MAX_BATCH + 1)
    assert calls.press
    assert calls.take(NOW) == added[:-1]
    assert calls.take(NOW) == added[-1:]
    assert not calls.press
    assert calls.take(NOW) == []


async def test_one_that_comes_alone_takes_no_patient_ones_along(calls: Calls) -> None:
    patient = add(calls, FEW, patient=True)
    [alone] = add(calls, 1)
    assert calls.take(NOW) == [alone]
    assert not calls.press
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
    assert calls.press
    [alone] = add(calls, 1)
    assert calls.take(NOW) == [alone, *patient]
    later = add(calls, 1, patient=True)
    assert not calls.press, "it was for those who waited"
    assert calls.take(NOW) == later


async def test_a_hurry_without_anybody_is_none(calls: Calls) -> None:
    calls.hurry()
    add(calls, 1, patient=True)
    assert not calls.press


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
