"""Whoever owns the state directory, asked in one place, and elected anew when it goes."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from ..model.errors import ErrorCode, Phase, SupervisorError
from .election import Terms, is_loss, pause, take_next_seat

if TYPE_CHECKING:
    from .seat import Seat
    from .verbs import Verbs

T = TypeVar("T")


class Owner:
    """This process itself, or another that serves its socket."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._seat: Seat | None = None
        self._election: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def current(self) -> Seat | None:
        """Who answered last."""
        return self._seat

    @property
    def vacant(self) -> bool:
        """Is it being found out who answers from now on?"""
        return self._election is not None

    async def seat(self, lost: Seat | None = None) -> Seat:
        """Who answers; elected first where nobody has been yet, or the one that was ``lost`` is still it.

        However many ask at once, there is one election, and none of them can cancel it for the others.
        Raises what `take_seat` does, and ``SUPERVISOR_CLOSED``.
        """
        while self._seat is None or self._seat is lost:
            if self._closed:
                raise _closed()
            if self._election is None:
                self._election = asyncio.create_task(self._elect(), name="durable-supervisor-election")
                self._election.add_done_callback(self._elected)
            election = self._election
            await asyncio.wait([election])
            if not election.cancelled():
                election.result()
        return self._seat

    async def ask(self, call: Callable[[Verbs], Awaitable[T]]) -> T:
        """Put one call to the owner; to its successor, where that is safe (`is_loss`).

        A call that keeps losing its owner is given up after ``wait`` seconds, with the last error.
        """
        loop = asyncio.get_running_loop()
        seat, deadline = await self.seat(), None
        for attempt in itertools.count():
            try:
                async with seat.asked() as answering:
                    return await call(answering)
            except SupervisorError as error:
                deadline = loop.time() + self._terms.wait if deadline is None else deadline
                if not is_loss(error) or loop.time() >= deadline:
                    raise
            await asyncio.sleep(pause(attempt, self._terms.chance()))
            seat = await self.seat(lost=seat)
        raise AssertionError("count() has no end")

    async def close(self) -> None:
        """Let go of whatever it is.  Idempotent."""
        self._closed = True
        if self._election is not None:
            self._election.cancel()
            await asyncio.wait([self._election])
        if self._seat is not None:
            await self._seat.close()

    async def _elect(self) -> None:
        left = self._seat
        self._seat = await take_next_seat(left, self._terms)
        if left is not None:
            await left.leave()

    def _elected(self, election: asyncio.Task[None]) -> None:
        self._election = None
        if not election.cancelled():
            election.exception()  # whoever waited for it may be gone, and then nobody else looks


def _closed() -> SupervisorError:
    return SupervisorError(
        ErrorCode.SUPERVISOR_CLOSED, "it is closed", phase=Phase.OPEN, hint="open it again"
    )
