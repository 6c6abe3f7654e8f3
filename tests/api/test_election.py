"""Who answers for a state directory."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import durable_supervisor
from durable_supervisor import Command, ErrorCode, Supervisor, SupervisorError
from durable_supervisor.api.election import Terms, is_loss, pause, take_seat
from durable_supervisor.api.owner import Owner
from durable_supervisor.api.session import Session
from tests.contract.hosts import check_error, refused
from tests.support import PATIENCE, eventually_async


def error(code: ErrorCode, *, retryable: bool = False) -> SupervisorError:
    return SupervisorError(code, "x", retryable=retryable)


@pytest.mark.parametrize("code", list(ErrorCode))
def test_only_a_call_that_was_not_carried_out_goes_to_the_next_owner(code: ErrorCode) -> None:
    again = {ErrorCode.SERVICE_UNAVAILABLE, ErrorCode.SHUTTING_DOWN}
    assert is_loss(error(code)) is (code in again)
    # A start: its request id makes the second one harmless.
    assert is_loss(error(code, retryable=True)) is (code in {*again, ErrorCode.SUBMISSION_INDETERMINATE})


def test_pauses_grow_to_a_bound_and_are_spread_out() -> None:
    longest = [pause(attempt, 0.999) for attempt in range(2000)]
    shortest = [pause(attempt, 0.0) for attempt in range(2000)]
    assert longest == sorted(longest)
    assert max(longest) <= 0.1
    assert all(low < high for low, high in zip(shortest, longest, strict=True))
    assert min(shortest) > 0


async def test_a_free_directory_is_owned(state_dir: Path) -> None:
    seat = await take_seat(Terms(str(state_dir), serve=False))
    try:
        assert seat.role == "owner"
        await refuse(state_dir)
    finally:
        await seat.close()
    async with Supervisor.open(state_dir, wait=0):
        pass


async def refuse(state_dir: Path) -> None:
    async with refused(ErrorCode.STATE_DIR_IN_USE):
        await take_seat(Terms(str(state_dir), serve=False, wait=0))


async def test_an_owner_that_serves_nobody_is_waited_for_then_named(state_dir: Path) -> None:
    async with Supervisor.open(state_dir) as sup:
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with refused(ErrorCode.STATE_DIR_IN_USE) as caught:
            await durable_supervisor.open(state_dir, wait=0.3)
        assert 0.3 <= loop.time() - began < PATIENCE
        assert "does not answer" in caught().hint
        waiting = asyncio.create_task(take_seat(Terms(str(state_dir), serve=False)))
        await asyncio.sleep(0)
        await sup.close()
        seat = await waiting  # an owner that ends in time is no trouble
        assert seat.role == "owner"
        await seat.close()


async def test_serving_can_be_left_and_can_be_demanded(state_dir: Path) -> None:
    async with durable_supervisor.open(state_dir, serve=False) as host:
        assert host.role == "owner"
        assert not (state_dir / "supervisor.sock").exists()
    async with durable_supervisor.open(state_dir, serve=True) as host:
        assert (state_dir / "supervisor.sock").is_socket()
    assert not (state_dir / "supervisor.sock").exists()


async def test_many_who_ask_at_once_hold_one_election(state_dir: Path) -> None:
    owner = Owner(Terms(str(state_dir), serve=False))
    first, *others = [asyncio.create_task(owner.seat()) for _ in range(5)]
    await asyncio.sleep(0)
    first.cancel()  # whoever gives up does not take it from the others
    seats = await asyncio.gather(*others)
    assert len(set(map(id, seats))) == 1
    await owner.close()


async def test_closing_in_the_middle_of_an_election_leaves_the_directory_free(state_dir: Path) -> None:
    owner = Owner(Terms(str(state_dir), serve=False))
    asking = asyncio.create_task(owner.seat())
    await asyncio.sleep(0.01)
    await owner.close()
    await asyncio.gather(asking, return_exceptions=True)
    async with Supervisor.open(state_dir, wait=0):
        pass


async def test_giving_up_to_open_leaves_the_directory_free(state_dir: Path) -> None:
    for moment in (0.0, 0.002, 0.01, 0.03):
        opening = asyncio.ensure_future(durable_supervisor.open(state_dir).__aenter__())
        await asyncio.sleep(moment)
        opening.cancel()
        done = (await asyncio.gather(opening, return_exceptions=True))[0]
        if isinstance(done, Session):
            await done.close()
        async with Supervisor.open(state_dir, wait=0):
            pass


async def test_of_eight_that_lose_their_owner_at_once_one_takes_its_place(state_dir: Path) -> None:
    first = await durable_supervisor.open(state_dir)
    others = [await durable_supervisor.open(state_dir) for _ in range(8)]
    try:
        assert first.role == "owner"
        assert {one.role for one in others} == {"client"}
        await first.close()

        def taken() -> bool:
            return [one.role for one in others].count("owner") == 1

        await eventually_async(taken)
        command = Command(argv=["true"])
        runs = await asyncio.gather(*(one.start(command, request_id="same") for one in others))
        assert len({run.id for run in runs}) == 1
        assert [run.admission for run in runs].count("new") == 1
        assert taken()
    finally:
        await asyncio.gather(*(one.close() for one in others))


async def test_a_closed_session_says_so(state_dir: Path) -> None:
    host = await durable_supervisor.open(state_dir, serve=False)
    assert isinstance(host, Session)
    await asyncio.gather(host.close(), host.close())
    for call in (host.start(Command(argv=["true"])), host.stop("x"), host.reconcile(), host.list()):
        with pytest.raises(SupervisorError) as caught:
            await call
        check_error(caught.value, ErrorCode.SUPERVISOR_CLOSED)


async def test_whoever_waits_for_an_owner_learns_that_the_session_is_closed(state_dir: Path) -> None:
    """As an error, not as a cancellation that nobody has asked for."""
    async with Supervisor.open(state_dir):
        owner = Owner(Terms(str(state_dir), serve=False))
        asking = asyncio.create_task(owner.ask(lambda verbs: verbs.reconcile()))
        await asyncio.sleep(0.05)
        await owner.close()
        async with refused(ErrorCode.SUPERVISOR_CLOSED):
            await asking
