"""From an admitted request to a released program: log, lock, intent, hand over.

The order is the guarantee: the log is created and locked, the intent committed,
and only then does a worker get the locked descriptor.  So from before dispatch
until the worker's death somebody holds the lock, and a free lock means that
nobody will ever run this attempt.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from ..journal.connection import Journal
from ..journal.rows import Admission, RunRow
from ..process import forks
from ..process.clock import Clock
from ..process.failpoints import failpoint
from .admission import Prepared, conflict
from .ears import Ears
from .intent import AdmitWork
from .links import OnNews, Word, WorkerLink
from .opening import Identity
from .patience import Patience
from .slots import Key, Slots
from .state_dir import StateDir
from .workers import Source, Workers

T = TypeVar("T")
Blocking = Callable[[Callable[[], T]], Coroutine[Any, Any, T]]

SPEC_SECONDS = 60.0  # for a large stdin; a worker that stands still must not hold up a close for ever
FIRST_WORD_SECONDS = 10.0
NOT_KNOWN = "not_known"


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
        self._place = place
        self._journal = journal
        self._identity = identity
        self._clock = clock
        self._blocking = blocking
        self._on_news = on_news
        self._workers = Workers(blocking, source)
        self._under_way: dict[Key, asyncio.Future[None]] = {}  # of each request id that somebody is starting
        self._patience, self._ears = Patience(FIRST_WORD_SECONDS), Ears()
        self._slots = slots

    def close(self) -> None:
        """Let go of every worker.  They go on."""
        for link in list(self.links.values()):
            link.close()
        self._ears.close()
        self._workers.close()

    async def start(self, prepared: Prepared) -> tuple[Admission, str]:
        """The admission, and the worker's first word (``released``, …) for what was dispatched now.

        Raises ``IDEMPOTENCY_CONFLICT``, ``CAPACITY_EXHAUSTED``, ``NO_SPACE``, ``JOURNAL_BEHIND``, what
        the journal raises, and ConnectionResetError for a call that was given up, of which nothing is left.
        """
        while (earlier := self._under_way.get(prepared.key)) is not None:
            await asyncio.wait((earlier,))
        self._under_way[prepared.key] = ours = asyncio.get_running_loop().create_future()
        try:
            return await self._start(prepared)
        finally:
            del self._under_way[prepared.key]
            ours.set_result(None)

    async def _start(self, prepared: Prepared) -> tuple[Admission, str]:
        if prepared.host.hung_up():
            raise ConnectionResetError("nobody waits for this start any more")
        work = AdmitWork(
            self._place, self._identity, self._clock, self._identity.serials, prepared, self._slots
        )
        try:
            admission = await self._journal.write(work)
        except BaseException as error:
            work.let_go(error)
            raise
        failpoint("start.committed")
        if admission.kind in ("new", "retry"):
            return admission, await self._hand_over(prepared, work, admission.row)
        work.let_go(None)
        if admission.kind == "conflict":
            raise conflict(admission)
        return admission, NOT_KNOWN

    async def _hand_over(self, prepared: Prepared, work: AdmitWork, row: RunRow) -> str:
        """Give the locked log to a worker.  Whatever goes wrong, the evidence says how far it came."""
        assert work.place is not None  # noqa: S101  an admitted request has one
        place, paths, log = work.place, work.paths(), work.log
        if prepared.host.hung_up():  # while we stood still, say
            forks.close(log)
            return "closed"
        try:
            ours, theirs = forks.socketpair(socket.SOCK_STREAM)
        except OSError:  # no descriptor to be had: nobody will ever run this attempt
            forks.close(log)
            return "closed"
        link = WorkerLink(row, ours, self._ears, self._news)
        try:
            link.send_ahead(prepared.spec_frame(place, paths, queued=work.queued))
            link.worker = await self._workers.start(
                place.run_id, theirs.fileno(), log, paths.log(place.attempt)
            )
        except OSError:
            link.close()
            return "closed"
        except BaseException:  # a cancelled loop: whoever was started finds no spec, and leaves
            link.close()
            raise
        finally:
            forks.close_socket(theirs)
        failpoint("start.spawned")
        earlier = self.links.get(place.run_id)
        if earlier is not None:  # of an attempt that is proven over, whose end was not read yet
            earlier.close()
        self.links[place.run_id] = link
        try:
            await link.hand_over(SPEC_SECONDS)
        except OSError:  # a worker that does not get all of it never begins
            link.hang_up()
            return "closed"
        failpoint("start.handed_over")
        return await self._first_word(link)

    async def _first_word(self, link: WorkerLink) -> str:
        late = partial(link.say_first, NOT_KNOWN)  # a silent worker is not a dead one
        self._patience.begin(late)
        try:
            word = await link.first_word
        finally:
            self._patience.end(late)
        failpoint("start.answered")
        return word

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
