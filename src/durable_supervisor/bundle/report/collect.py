"""Takes a run's events in, in order, and keeps what a report shows of them, in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from ...model.events import Event, Kind
from ...model.outcome import STOP_OUTCOMES
from ...model.states import RunState
from ..timebase import Timebase
from .pane import Pane
from .rates import Rates
from .words import clipped, event_words, gap_words, signal_word

T = TypeVar("T")

_MOST = 400  # of head and tail each

_STATES = {
    Kind.RUN_QUEUED: RunState.QUEUED,
    Kind.RUN_DISPATCHED: RunState.STARTING,
    Kind.PROGRAM_RELEASED: RunState.RUNNING,
    Kind.RUN_STOPPING: RunState.STOPPING,
    Kind.RUN_FINISHED: RunState.FINISHED,
    Kind.RUN_NOT_STARTED: RunState.NOT_STARTED,
    Kind.RUN_UNKNOWN: RunState.UNKNOWN,
    Kind.RUN_QUARANTINED: RunState.QUARANTINED,
}


class HeadAndTail(Generic[T]):
    """The first and the last of many; ``left_out`` says how many lie between."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self.head: list[T] = []
        self.tail: deque[T] = deque(maxlen=most)
        self.left_out = 0

    def add(self, item: T) -> None:
        if len(self.head) < self._most:
            self.head.append(item)
            return
        self.left_out += len(self.tail) == self._most
        self.tail.append(item)

    def __iter__(self) -> Iterator[T]:
        yield from self.head
        yield from self.tail


@dataclass(frozen=True, slots=True)
class Entry:
    """An event that is not output, as a row of the timeline."""

    seq: int
    seconds: float
    kind: str
    words: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment worth a sign in the picture.  ``shape``: ``signal``, ``control``, ``limit`` or ``end``."""

    seconds: float
    shape: str
    label: str


@dataclass(frozen=True, slots=True)
class Phase:
    """From here on the run is in this state."""

    seconds: float
    state: RunState


class Collector:
    """Feed it every event once, with `add`; then `finish`."""

    def __init__(self) -> None:
        self.entries: HeadAndTail[Entry] = HeadAndTail()
        self.marks: HeadAndTail[Mark] = HeadAndTail(100)
        self.phases: HeadAndTail[Phase] = HeadAndTail(50)
        self.rates = Rates()
        self.pane = Pane()
        self.seconds = 0.0  # of the last event
        self.events = 0
        self._timebase = Timebase()

    def add(self, event: Event) -> None:
        seconds = self.seconds = self._timebase.seconds(event)
        self.events += 1
        if event.kind == Kind.OUTPUT:
            stream = event.stream or "stdout"
            self.rates.add(stream, seconds, len(event.data))
            self.pane.add(stream, seconds, event.seq, event.data)
            return
        if event.kind == Kind.OUTPUT_DROPPED:
            self.pane.note(seconds, event.seq, clipped(gap_words(event.detail)))
        self.entries.add(Entry(event.seq, seconds, event.kind, event_words(event.kind, event.detail)))
        state = _STATES.get(event.kind)
        if state is not None:
            self.phases.add(Phase(seconds, state))
        mark = _mark(seconds, event.kind, event.detail)
        if mark is not None:
            self.marks.add(replace(mark, label=clipped(mark.label)))

    def finish(self) -> None:
        """No more will come."""
        self.pane.finish()


def _mark(seconds: float, kind: str, detail: Mapping[str, object]) -> Mark | None:
    if kind == Kind.PROGRAM_SIGNALLED:
        return Mark(seconds, "signal", signal_word(detail.get("signal")))
    if kind == Kind.CONTROL_RECEIVED:
        return Mark(seconds, "control", str(detail.get("op")))
    if kind == Kind.RUN_STOPPING:
        reason = str(detail.get("reason"))
        limit = reason in STOP_OUTCOMES and reason not in ("stop", "worker_terminated")
        return Mark(seconds, "limit", reason.replace("_", " ")) if limit else None
    if kind == Kind.OUTPUT_DROPPED:
        return Mark(seconds, "limit", "dropped")
    if kind == Kind.PROGRAM_EXITED:
        return Mark(seconds, "end", event_words(kind, detail))
    return None
