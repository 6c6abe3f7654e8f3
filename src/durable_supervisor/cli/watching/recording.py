"""A run's events with their moments, to be played from anywhere."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

from durable_supervisor.bundle.timebase import Timebase

if TYPE_CHECKING:
    from durable_supervisor.api.verbs import Reading
    from durable_supervisor.model.events import Event

_PAGE = 500


@dataclass(frozen=True, slots=True)
class _Bookmark:
    """Where a page begins: the seq before it, the moment, and the clock that tells the next ones."""

    after: int
    seconds: float
    timebase: Timebase


class Recording:
    """Reads page by page, and keeps one bookmark for each page that it has seen."""

    def __init__(self, reading: Reading, run: str, after: int) -> None:
        self._reading = reading
        self._run = run
        self._bookmarks = [_Bookmark(after, 0.0, Timebase())]

    async def play(self, position: float) -> AsyncGenerator[tuple[float, Event], None]:
        """Every event with its moment, beginning somewhere before ``position``."""
        known = [mark for mark in self._bookmarks if mark.seconds <= position] or self._bookmarks[:1]
        after, timebase = known[-1].after, copy(known[-1].timebase)
        while True:
            page = await self._reading.events(self._run, after=after, limit=_PAGE)
            seconds = 0.0
            for event in page.events:
                seconds = timebase.seconds(event)
                yield seconds, event
            if page.end or page.next_after >= page.head or page.next_after == after:
                return
            after = page.next_after
            if after > self._bookmarks[-1].after:
                self._bookmarks.append(_Bookmark(after, seconds, copy(timebase)))
