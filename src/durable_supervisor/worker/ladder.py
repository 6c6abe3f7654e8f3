"""The stop ladder, as a pure state machine: what to do now, and when to look again.

TERM then CONT to all, the grace, then kill-and-reap rounds until nothing is
left; at the bound, whatever remains is named.  At a terminal, HUP comes soon after
TERM, for those to whom TERM says nothing.
"""

from __future__ import annotations

from enum import StrEnum

KILL_BOUND = 10.0  # seconds of kill rounds before survivors are named
_FIRST_ROUND = 0.02
_SLOWEST_ROUND = 0.5
_MOMENT = 0.05  # seconds from TERM to HUP


class Step(StrEnum):
    TERM = "term"
    HANG_UP = "hang_up"
    WAIT = "wait"
    KILL = "kill"
    GIVE_UP = "give_up"


class Ladder:
    """One descent.  Times are seconds on one monotonic clock, passed in.

    ``terminal``: the program has one, which it loses.
    """

    def __init__(self, grace: float, now: float, *, terminal: bool = False) -> None:
        self.escalated = False
        self._kill_at = now + grace
        self._round = _FIRST_ROUND
        self._give_up_at = self._kill_at + KILL_BOUND
        self._requests = [Step.TERM, Step.HANG_UP] if terminal else [Step.TERM]

    def hasten(self, grace: float, now: float) -> bool:
        """A later, more impatient stop shortens the grace; it never prolongs it."""
        if now + grace >= self._kill_at:
            return False
        self._kill_at = now + grace
        self._give_up_at = self._kill_at + KILL_BOUND
        return True

    def step(self, now: float) -> tuple[Step, float]:
        """What to do now, and after how many seconds to ask again."""
        if now < self._kill_at:
            left = self._kill_at - now
            if not self._requests:
                return Step.WAIT, left
            step = self._requests.pop(0)
            return step, min(_MOMENT, left) if self._requests else left
        self.escalated = True
        again, self._round = self._round, min(self._round * 2, _SLOWEST_ROUND)
        if now >= self._give_up_at:
            return Step.GIVE_UP, again
        return Step.KILL, again
