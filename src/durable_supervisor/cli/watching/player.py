"""Where a replay stands, and what a key does to it.  Pure: the time now is always an argument."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

_SEEK_SECONDS: Final = 10.0
_SLOWEST: Final = 1 / 64
_FASTEST: Final = 1024.0


class Action(Enum):
    """What a person at a terminal may want."""

    PAUSE = auto()
    FORWARD = auto()
    BACK = auto()
    FASTER = auto()
    SLOWER = auto()
    LEAVE = auto()


# Arrow keys come in two forms: a terminal's normal and its application mode (DECCKM).
KEYS: Final[dict[bytes, Action]] = {
    b" ": Action.PAUSE,
    b"\x1b[C": Action.FORWARD,
    b"\x1bOC": Action.FORWARD,
    b"\x1b[D": Action.BACK,
    b"\x1bOD": Action.BACK,
    b"\x1b[A": Action.FASTER,
    b"\x1bOA": Action.FASTER,
    b"+": Action.FASTER,
    b"=": Action.FASTER,  # the same key without shift
    b"\x1b[B": Action.SLOWER,
    b"\x1bOB": Action.SLOWER,
    b"-": Action.SLOWER,
    b"q": Action.LEAVE,
}


def actions(typed: bytes) -> list[Action]:
    """What these bytes of a terminal ask for; keys that mean nothing are skipped."""
    found = []
    while typed:
        key = next((typed[:length] for length in (3, 1) if typed[:length] in KEYS), None)
        if key is not None:
            found.append(KEYS[key])
        typed = typed[len(key or typed[:1]) :]
    return found


@dataclass(frozen=True, slots=True)
class Playback:
    """The replay stood at ``position`` (seconds of the run's life) when the clock said ``since``."""

    position: float
    since: float
    speed: float = 1.0
    paused: bool = False

    def at(self, now: float) -> float:
        """Where it stands now."""
        return self.position if self.paused else self.position + (now - self.since) * self.speed

    def until(self, position: float, now: float) -> float | None:
        """Seconds until it gets there, 0 if it has; None while it is paused before it."""
        left = position - self.at(now)
        if left <= 0:
            return 0.0
        return None if self.paused else left / self.speed

    def after(self, action: Action, now: float) -> Playback:
        """What an action makes of it.  `Action.LEAVE` is the caller's."""
        here = replace(self, position=self.at(now), since=now)
        match action:
            case Action.PAUSE:
                return replace(here, paused=not self.paused)
            case Action.FORWARD:
                return replace(here, position=here.position + _SEEK_SECONDS)
            case Action.BACK:
                return replace(here, position=max(here.position - _SEEK_SECONDS, 0.0))
            case Action.FASTER:
                return replace(here, speed=min(self.speed * 2, _FASTEST))
            case Action.SLOWER:
                return replace(here, speed=max(self.speed / 2, _SLOWEST))
            case Action.LEAVE:
                return here


def told(state: Playback, action: Action) -> str:
    """What a person is told after a key."""
    where = f"+{state.position:.1f}s"
    if action is Action.PAUSE:
        return f"paused at {where}; space goes on" if state.paused else f"on from {where}"
    if action in (Action.FASTER, Action.SLOWER):
        return f"speed {state.speed:g}"
    return f"at {where}"
