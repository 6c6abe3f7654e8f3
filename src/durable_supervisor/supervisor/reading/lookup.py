"""`Reading` for an event loop: its blocking work in threads of our own, until it is closed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from ...journal.rows import RunRow
from ...model.errors import ErrorCode, Phase, SupervisorError
from ...process.shortage import is_shortage
from ...process.threads import in_thread
from ...runlog.paths import RunPaths
from ..admission.host import short_of
from ..admission.refusals import out_of_reach
from ..imports.imported import is_imported, paths_of
from ..state.state_dir import StateDir

if TYPE_CHECKING:
    from ...bundle.snapshot import Snapshot
    from ...journal.history import History
    from ...model.answers import FeedEntry, ListPage
    from ...model.page import Page
    from ...model.states import RunState
    from ...model.view import RunView
    from ...runlog.nonblocking import NonblockingReader
    from .reading import Reading

T = TypeVar("T")


class Lookup:
    """Looks runs up without holding up the loop.

    Every coroutine raises what `Reading` does, ``SUPERVISOR_CLOSED`` and ``FORKED_COPY``, and all that
    read ``BUSY`` where descriptors are short: that is no news of any run.
    """

    def __init__(self, place: StateDir) -> None:
        self.closed = False  # nothing more is answered
        # Threads of our own: the host's executor may be busy with something else for long.
        self.threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="durable-supervisor")
        self._place = place
        self._made: Reading | None = None
        self._making = Lock()
        self._turn = asyncio.Lock()
        self._pid = os.getpid()
        self._closing: asyncio.Future[None] | None = None  # somebody waits for `close`
        self._untold: set[asyncio.Future[int]] = set()  # waited for, but no longer than until `close`
        self._calls: set[asyncio.Future[Any]] = set()  # under way

    @property
    def forked(self) -> bool:
        """Is this a forked copy?  All that it would use or close is the original's."""
        return os.getpid() != self._pid

    async def close(self) -> None:
        """Let go of files and threads.  Idempotent; not for a forked copy."""
        self.closed = True
        if self._closing is not None and not self._closing.done():
            self._closing.set_result(None)
        for news in self._untold:
            if not news.done():
                news.set_result(0)
        while self._calls:
            await asyncio.wait(set(self._calls))
        if self._made is not None:
            self._made.close()
        self.threads.shutdown(wait=False)

    def check_open(self) -> None:
        """Raises ``FORKED_COPY``, ``SUPERVISOR_CLOSED``."""
        if os.getpid() != self._pid:  # as `forked`, without a call: each start asks
            raise SupervisorError(
                ErrorCode.FORKED_COPY,
                "this object was made before a fork; the copy must not use it",
                phase=Phase.OPEN,
                hint="open one of its own in the new process",
            )
        if self.closed:
            raise SupervisorError(
                ErrorCode.SUPERVISOR_CLOSED,
                "it is closed",
                phase=Phase.OPEN,
                hint="open it again",
            )

    async def blocking(self, work: Callable[[], T]) -> T:
        """Run ``work`` in a thread; `close` waits for it.  Raises OSError EAGAIN where there is none."""
        self.check_open()
        answer = self._submit(work)
        try:
            return await answer
        finally:
            self._calls.discard(answer)

    async def in_turn(self, work: Callable[[], T]) -> T:
        """As `blocking`, for what may hang for long: one after the other, it holds one thread and not all."""
        async with self._turn:
            return await self.blocking(work)

    def begin(self, work: Callable[[], T], then: Callable[[T], object]) -> None:
        """As `blocking`, for who awaits nothing: ``then`` gets what ``work`` returned, on the loop.

        Raises OSError as it does.
        """

        def done(answer: asyncio.Future[T]) -> None:
            self._calls.discard(answer)
            then(answer.result())

        self.check_open()
        self._submit(work).add_done_callback(done)

    def _submit(self, work: Callable[[], T]) -> asyncio.Future[T]:
        answer = in_thread(self.threads, work)
        self._calls.add(answer)
        return answer

    @property
    def _reading(self) -> Reading:
        """For the threads.  Loaded at the first look, which a command line that starts a run never takes."""
        with self._making:
            if self._made is None:
                from .reading import Reading

                self._made = Reading(self._place)
            return self._made

    async def _read(self, work: Callable[[], T]) -> T:
        try:
            return await self.blocking(work)
        except OSError as error:
            if is_shortage(error):
                raise short_of(error, Phase.READ) from error
            raise

    async def unless_closed(self, waiting: Coroutine[Any, Any, object]) -> None:
        """Wait for news, at the longest until `close`: the next look then says that it is closed."""
        news: asyncio.Future[Any] = asyncio.ensure_future(waiting)
        try:
            if self._closing is None:
                self._closing = asyncio.get_running_loop().create_future()
            if not self.closed:
                await asyncio.wait({news, self._closing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()
        if not news.done():
            await asyncio.wait({news})
        if not news.cancelled():
            news.result()

    async def told_or_closed(self, news: asyncio.Future[int]) -> int:
        """As `unless_closed`, of a caller's own `News.after`; 0 where it is closed before.

        Its future is awaited itself: to wait for the first of two takes another turn of the loop.
        """
        if self.closed:
            return 0
        self._untold.add(news)
        try:
            head = await news
            return 0 if self.closed else head
        finally:
            self._untold.discard(news)

    async def row(self, run: str, owner: str | None = None) -> RunRow:
        return await self._read(lambda: self._reading.row(run, owner))

    async def own(self, run: str, refusal: ErrorCode = ErrorCode.NOT_RUNNING) -> RunRow:
        """As `row`, of a run that is this directory's: nothing of an imported one is in reach.

        Raises ``refusal`` for that.
        """
        row = await self.row(run)
        if is_imported(row):
            raise out_of_reach(row.run_id, refusal)
        return row

    async def view(self, run: str, *, live: bool = False) -> RunView:
        return await self._read(lambda: self._reading.inspect(run, live=live))

    async def list(
        self,
        *,
        limit: int,
        before: int | None,
        states: Collection[RunState] | None,
        label: tuple[str, str] | None,
        owner: str | None = None,
        collected: bool = False,
    ) -> ListPage:
        return await self._read(
            lambda: self._reading.list(
                limit=limit, before=before, states=states, label=label, owner=owner, collected=collected
            )
        )

    async def page(
        self, row: RunRow, after: int, limit: int, kinds: frozenset[str] | None, output: bool
    ) -> Page:
        return await self._read(lambda: self._reading.page(row, after, limit, kinds, output))

    async def page_to_follow(
        self,
        row: RunRow,
        after: int,
        told: int,
        limit: int,
        kinds: frozenset[str] | None,
        output: bool,
        nonblocking: NonblockingReader,
    ) -> Page:
        """As `page`, for who goes on to wait for more.

        ``told``: the head that the worker has just told of, or 0.  What it wrote for that needs no thread to
        be read: ``nonblocking`` has it.
        """
        page = nonblocking.page(after, told, limit, kinds=kinds, output=output) if told else None
        if page is not None:
            return page
        return await self._read(
            lambda: self._reading.page_to_follow(row, after, limit, kinds, output, nonblocking)
        )

    def close_nonblocking(self, nonblocking: NonblockingReader) -> None:
        """In a thread, where one is to be had: it may wait."""
        try:
            self.begin(nonblocking.close, lambda _: None)
        except (SupervisorError, OSError):
            nonblocking.close()

    async def feed(self, after: int, limit: int, owner: str | None = None) -> Sequence[FeedEntry]:
        return await self._read(lambda: self._reading.feed(after, limit, owner))

    async def history(self, row: RunRow) -> History:
        return await self._read(lambda: self._reading.history(row))

    async def snapshot(self, row: RunRow) -> Snapshot:
        """The run's files, held open.  Close it.  Raises ``RUN_COLLECTED``."""
        return await self._read(lambda: self._reading.snapshot(row))

    async def owned(self) -> bool:
        return await self._read(lambda: self._reading.owned())

    async def log_of(self, seen: RunView) -> str:
        """The path of its attempt's log."""
        return self.paths(await self.row(seen.id)).log(seen.attempt)

    def paths(self, row: RunRow) -> RunPaths:
        return paths_of(row, self._place.runs)
