"""Calls that wait for a transaction of the journal, and which of them the next one takes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from .batch import Work

MAX_BATCH = 256  # bounds how long one transaction keeps others waiting
PATIENCE_SECONDS = 0.05  # how long a patient call waits for others to share its commit with
# So many patient calls are worth a transaction; whoever comes meanwhile waits for no more than these.
FEW = 4


class Call(NamedTuple):
    """``patient``: its caller does not mind when.  ``since`` and ``deadline``: of the loop's clock."""

    work: Work
    durable: bool
    patient: bool
    answer: asyncio.Future[Any]
    since: float
    deadline: float


class Calls:
    """Pressing ones go at once, all that wait share a transaction.

    Patient ones go along where several callers share it anyway.  To one that comes alone they would be
    a burden, since each takes about as long as its own work: they go behind it.
    """

    def __init__(self) -> None:
        self._pressing: deque[Call] = deque()
        self._patient: deque[Call] = deque()
        self._hurried = False

    def add(self, call: Call) -> None:
        self._queue(call).append(call)

    def put_back(self, calls: Iterable[Call]) -> None:
        """What was taken and not done is the first to be taken again."""
        for call in reversed(list(calls)):
            self._queue(call).appendleft(call)

    def hurry(self) -> None:
        """Nobody who waits now is patient any more."""
        self._hurried = bool(self._patient)

    @property
    def press(self) -> bool:
        """Is there one that nothing is to be waited for with?"""
        return bool(self._pressing) or self._hurried

    @property
    def enough(self) -> bool:
        """Are there as many patient ones as are worth a transaction?"""
        return len(self._patient) >= FEW

    @property
    def patience_ends(self) -> float | None:
        """When the next patient call has waited long enough; None where there is none."""
        return self._patient[0].since + PATIENCE_SECONDS if self._patient else None

    def take(self, now: float) -> list[Call]:
        """The calls of the next transaction.  Empty only if none waits: those of callers that were
        cancelled are dropped, before they begin.
        """
        ends = self.patience_ends
        late = ends is not None and now >= ends
        # However many press, half is for those that are late: each start brings a fold, and none may pile up.
        kept = min(len(self._patient), MAX_BATCH // 2) if late else 0
        batch = _take(self._pressing, MAX_BATCH - kept)
        room = MAX_BATCH - len(batch)
        if len(batch) < 2 and not self._hurried:
            # Where they come faster than in a few at a time, more of them share one.
            few = max(FEW, len(self._patient) // 2)
            room = min(few, room) if late or not batch else 0
        batch += _take(self._patient, room)
        self._hurried = self._hurried and bool(self._patient)
        return batch

    def _queue(self, call: Call) -> deque[Call]:
        return self._patient if call.patient else self._pressing


def _take(queue: deque[Call], room: int) -> list[Call]:
    taken: list[Call] = []
    while queue and len(taken) < room:
        call = queue.popleft()
        if not call.answer.done():
            taken.append(call)
    return taken
