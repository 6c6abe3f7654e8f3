"""Calls that wait for a transaction of the journal, and which of them the next one takes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from .answer import Answer
from .batch import Work

MAX_BATCH = 256  # bounds how long one transaction keeps others waiting
PATIENCE_SECONDS = 0.05  # how long a patient call waits for others to share its commit with
# So many patient calls are worth a transaction; whoever comes meanwhile waits for no more than these.
FEW = 4
CROWD = 5  # pressing calls that shared a transaction: fewer wait for nobody
CROWD_SECONDS = 0.05  # how long it is thought to go on without another transaction
GATHER_SECONDS = 0.003  # how long the first of a crowd waits for the others


class Call(NamedTuple):
    """``patient``: its caller does not mind when.  ``since`` and ``deadline``: of the loop's clock."""

    work: Work
    durable: bool
    patient: bool
    answer: Answer
    since: float
    deadline: float


class Calls:
    """Pressing ones go at once, all that wait share a transaction.

    The first of a crowd would go alone, and all the others wait for its commit: so it waits for them, until
    there are half as many as shared a transaction lately.

    Patient ones go along where several callers share it anyway.  To one that comes alone they would be
    a burden, since each takes about as long as its own work: they go behind it.
    """

    def __init__(self) -> None:
        self._pressing: deque[Call] = deque()
        self._patient: deque[Call] = deque()
        self._hurried = False
        self._crowd = 0  # so many pressing ones shared a transaction lately
        self._taken = 0.0  # when that was

    def add(self, call: Call) -> None:
        self._queue(call).append(call)

    def put_back(self, calls: Iterable[Call]) -> None:
        """What was taken and not done is the first to be taken again."""
        for call in reversed(list(calls)):
            self._queue(call).appendleft(call)

    def hurry(self) -> None:
        """Nobody who waits now is patient any more."""
        self._hurried = bool(self._patient)

    def may_bypass(self, now: float) -> bool:
        """May a pressing call that comes now go past the queues: would it have the next transaction alone?

        `take` is not called then, so a crowd does not shrink; where there is none, that changes nothing.
        """
        late = bool(self._patient) and now >= self._patient[0].since + PATIENCE_SECONDS
        return not (self._pressing or self._hurried or late or self._crowd >= CROWD)

    def press(self, now: float) -> bool:
        """Is there one that nothing is to be waited for with?"""
        if self._hurried or not self._pressing:
            return self._hurried
        goes_on = self._crowd >= CROWD and now - self._taken < CROWD_SECONDS
        gathers = goes_on and 2 * len(self._pressing) < self._crowd
        return not gathers or now >= self._pressing[0].since + GATHER_SECONDS

    @property
    def gathering_ends(self) -> float | None:
        """When the first of a crowd has waited long enough; None where none waits."""
        return self._pressing[0].since + GATHER_SECONDS if self._pressing else None

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
        if batch:
            # By a quarter each time: after a few lone calls there is no crowd any more.
            self._crowd, self._taken = max(len(batch), self._crowd * 3 // 4), now
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
