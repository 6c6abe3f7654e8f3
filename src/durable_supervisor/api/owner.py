"""Whoever owns the state directory, asked in one place, and elected anew when it goes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from ..model.errors import SupervisorError
from .election import Terms, is_loss, take_seat

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

    @property
    def current(self) -> Seat | None:
        """Who answered last."""
        return self._seat

    async def seat(self, lost: Seat | None = None) -> Seat:
        """Who answers; elected first where nobody has been yet, or the one that was ``lost`` is still it.

        However many ask at once, there is one election, and none of them can cancel it for the others.
        Raises what `take_seat` does.
        """
        while self._seat is None or self._seat is lost:
            if self._election is None:
                self._election = asyncio.create_task(self._elect(), name="durable-supervisor-election")
                self._election.add_done_callback(self._elected)
            await asyncio.shield(self._election)
        return self._seat

    async def ask(self, call: Callable[[Verbs], Awaitable[T]]) -> T:
        """Put one call to the owner; to its successor, where that is safe (`is_loss`).

        A call that keeps losing its owner is given up after ``wait`` seconds, with the last error.
        """
        loop = asyncio.get_running_loop()
        seat, deadline = await self.seat(), None
        while True:
            try:
                async with seat.asked() as answering:
                    return await call(answering)
            except SupervisorError as error:
                deadline = loop.time() + self._terms.wait if deadline is None else deadline
                if not is_loss(error) or loop.time() >= deadline:
                    raise
            seat = await self.seat(lost=seat)

    async def close(self) -> None:
        """Let go of whatever it is.  Idempotent."""
        if self._election is not None:
            self._election.cancel()
            await asyncio.wait([self._election])
        if self._seat is not None:
            await self._seat.close()

    async def _elect(self) -> None:
        left, self._seat = self._seat, await take_seat(self._terms)
        if left is not None:
            await left.leave()

    def _elected(self, election: asyncio.Task[None]) -> None:
        self._election = None
        if not election.cancelled():
            election.exception()  # whoever waited for it may be gone, and then nobody else looks
