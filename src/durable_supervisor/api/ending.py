"""The events of a held run, up to the last one, which carries the call's own result."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from ..model.events import Event, Kind
from ..model.result import RunResult
from .held import Held


class Finished(Event):
    """``run.finished``, with the result of the call: the output included that it has captured."""

    __slots__ = ("_result",)

    def __init__(self, event: Event, result: RunResult) -> None:
        super().__init__(event.seq, event.wall_ns, event.elapsed_ns, event.kind, event.detail)
        self._result = result

    @property
    def result(self) -> RunResult:
        return self._result


async def events_of(held: Held, after: int) -> AsyncGenerator[Event, None]:
    """Every event after the cursor, until the run is over.  Ending this ends nothing else.

    Raises ``OUTCOME_UNKNOWN`` after the last one, where its end cannot be known.
    """
    if held.run_id is None:
        return
    async with aclosing(held.verbs.follow(held.run_id, after=after)) as events:
        async for event in events:
            yield Finished(event, await held.result()) if event.kind == Kind.RUN_FINISHED else event
    await held.result()
