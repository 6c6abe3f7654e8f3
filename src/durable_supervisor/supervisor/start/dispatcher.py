"""Dispatching in an event loop: many requests at once, and the channels of their workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from ...journal.connection import Journal
from ...journal.rows import Admission, RunRow
from ...process.clock import Clock
from ..admission.admission import Prepared
from ..dispatch.dispatch import FIRST_WORD_SECONDS, NOT_KNOWN, Dispatch
from ..dispatch.next_log import NextLog
from ..loop.patience import Patience
from ..opening.opening import Identity
from ..slots.slots import Key, Slots
from ..state.state_dir import StateDir
from ..workers.links import OnNews, Word, WorkerLink
from ..workers.workers import Source, Workers

T = TypeVar("T")
Blocking = Callable[[Callable[[], T]], Coroutine[Any, Any, T]]


class Dispatcher:
    """Admits and dispatches, one attempt at a time per request id, many requests at once."""

    def __init__(
        self,
        place: StateDir,
        journal: Journal,
        identity: Identity,
        clock: Clock,
        blocking: Blocking[Any],
        on_news: OnNews,
        links: dict[str, WorkerLink],
        source: Source,
        slots: Slots,
    ) -> None:
        self.links = links
        self._loop = asyncio.get_running_loop()
        self._on_news = on_news
        self._patience = Patience(FIRST_WORD_SECONDS)
        self._workers = Workers(blocking, source)
        self._under_way: set[Key] = set()  # request ids that somebody is starting
        self._awaited: dict[Key, asyncio.Future[None]] = {}  # the ends of those that another waits for
        self._journal = journal
        self._next_log = NextLog(place.runs)
        self._newest = identity.first_serial - 1  # serial of the newest run
        self._dispatch = Dispatch(place, journal, identity, clock, slots, self, self._next_log.create)

    def close(self) -> None:
        """Let go of every worker.  They go on."""
        for link in list(self.links.values()):
            link.close()
        self._workers.close()
        self._next_log.close()

    async def start(self, prepared: Prepared) -> tuple[Admission, str]:
        """As `Dispatch.start`."""
        while prepared.key in self._under_way:
            await asyncio.wait((self._end_of(prepared.key),))
        self._under_way.add(prepared.key)
        is_new = False
        try:
            admission, word = await self._dispatch.start(prepared)
            is_new = admission.kind == "new"
            if is_new:
                self._newest = max(self._newest, admission.row.serial)
            return admission, word
        finally:
            if not self._loop.is_closed():  # else this start ends with its loop: nobody waits
                self._ended(prepared.key)
                # Its caller gets the answer in this turn of the loop, or in the next.  Until then no thread
                # is to be woken, which might take the processor away.
                self._loop.call_soon(self._loop.call_soon, partial(self._run_idle_work, prepares=is_new))

    def _end_of(self, key: Key) -> asyncio.Future[None]:
        """Made when somebody waits for it, which is rare."""
        if key not in self._awaited:
            self._awaited[key] = self._loop.create_future()
        return self._awaited[key]

    def _ended(self, key: Key) -> None:
        self._under_way.discard(key)
        if key in self._awaited:
            self._awaited.pop(key).set_result(None)

    def _run_idle_work(self, *, prepares: bool) -> None:
        """Once no start is under way.  ``prepares`` for the next one, should it come alone.

        Those of a crowd go without: what making a file takes is still in their caches.  Behind a start that
        was refused, say, nothing is written.
        """
        if self._under_way:
            return
        if prepares and not self._next_log.is_there:
            self._journal.aside(partial(self._next_log.make, self._newest))
        self._journal.run_idle_work()

    async def assign(self, row: RunRow, frame: bytes, log: int, log_path: str) -> WorkerLink:
        """For `Dispatch`, as is the next."""
        assignment = await self._workers.start(row.run_id, frame, log, log_path)
        earlier = self.links.get(row.run_id)
        if earlier is not None:  # of an attempt that is proven over, whose end was not read yet
            earlier.close()
        self.links[row.run_id] = link = WorkerLink(row, assignment, self._news)
        return link

    async def first_word(self, link: WorkerLink) -> str:
        late = partial(link.first_word.set, NOT_KNOWN)
        self._patience.begin(late)
        try:
            return await link.first_word.wait()
        finally:
            self._patience.end(late)

    async def until_ended(self, run_id: str, timeout: float | None) -> bool:
        """Return when its worker says that all is over, or in time.  False: it said so, or is not ours."""
        link = self.links.get(run_id)
        if link is None or link.ended:
            return False
        await link.until_ended(timeout)
        return True

    def _news(self, link: WorkerLink, word: Word) -> None:
        if link.closed:
            self.links.pop(link.run_id, None)
            if link.worker is not None:
                self._workers.back(link.worker)
        self._on_news(link, word)
