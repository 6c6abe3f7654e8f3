"""Reading and controls, which need no ownership: they work beside any owner, and with none alive."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import aclosing, closing
from functools import cached_property
from typing import TYPE_CHECKING, Self, TypeVar

from ..journal.bell import Bell
from ..model.arguments import BytesLike, kinds_of, position
from ..model.command import check_timeout
from ..model.errors import ErrorCode, Phase, SupervisorError
from ..model.identity import identity_of
from ..model.states import SETTLED_STATES, RunState
from .reading.lookup import Lookup
from .state import state_dir as directory
from .state.state_dir import StateDir

if TYPE_CHECKING:
    from ..model.answers import ControlReceipt, FeedEntry, ListPage, StopReceipt
    from ..model.audit import AuditReport
    from ..model.events import Event
    from ..model.page import Page
    from ..model.view import RunView
    from .controls.acknowledging import Acknowledger
    from .controls.attach import Attachment
    from .controls.controls import Controller
    from .following.follow import WorkerEnd
    from .following.news import Newsroom

T = TypeVar("T")

OVER = SETTLED_STATES | {RunState.QUARANTINED}
FOLLOW_PAGE = 256
_LONGEST_PAUSE = 0.25


class Observer:
    """One state directory, seen from outside.

    Wherever a verb takes a run, a unique beginning of its id will do.  Every verb
    may raise SupervisorError ``UNKNOWN_RUN``, ``AMBIGUOUS_RUN``, ``JOURNAL_NEWER``,
    ``JOURNAL_CORRUPT``, ``JOURNAL_IO``, ``SUPERVISOR_CLOSED`` and ``FORKED_COPY``.
    """

    def __init__(self, place: StateDir) -> None:
        self._place = place
        self._lookup = Lookup(place)
        self._acknowledger: Acknowledger | None = None
        self._commits: Bell | None = None  # an owner is told of each; others look again

    @classmethod
    def open(cls, state_dir: str | os.PathLike[str] | None = None) -> Observer:
        """Look at a state directory; one that does not exist yet has no runs.

        Raises ``STATE_DIR_REFUSED`` when it cannot be trusted.
        """
        place = directory.locate(state_dir)
        directory.check(place)
        return cls(place)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of files and threads.  Runs are left alone.  Idempotent.

        Who still follows or waits gets ``SUPERVISOR_CLOSED``.
        """
        if not self._lookup.forked:
            if self._acknowledger is not None:
                await self._acknowledger.close()
            await self._lookup.close()

    @property
    def state_dir(self) -> str:
        """The absolute path of the state directory."""
        return self._place.path

    # Reading.

    async def inspect(self, run: str) -> RunView:
        """Everything known about one run, as of now."""
        return await self._lookup.view(run, live=True)

    async def list(
        self,
        *,
        limit: int = 100,
        before: int | None = None,
        states: Collection[RunState] | None = None,
        label: tuple[str, str] | None = None,
        owner: str | None = None,
        collected: bool = False,
    ) -> ListPage:
        """Runs, newest first, by keyset: pass ``next_before`` of a page as ``before`` of the next.

        ``collected``: with those whose logs are gone.  Imported runs stand where they were imported; with
        ``owner`` they are left out.
        """
        return await self._lookup.list(
            limit=limit, before=before, states=states, label=label, owner=owner, collected=collected
        )

    async def find(self, run: str, *, owner: str | None = None) -> str:
        """The full id of a run; with ``owner``, another's run is an ``UNKNOWN_RUN``."""
        return (await self._lookup.row(run, owner)).run_id

    async def events(
        self,
        run: str,
        *,
        after: int = 0,
        limit: int = 100,
        kinds: Collection[str] | None = None,
        output: bool = True,
    ) -> Page:
        """Events with ``seq > after``, in order.  Filters do not renumber.

        Raises ``CURSOR_AHEAD`` when ``after`` is beyond the newest event, ``RUN_COLLECTED`` where its log
        is gone, as all verbs that read it.
        """
        wanted = kinds_of(kinds)
        row = await self._lookup.row(run)
        return await self._lookup.page(row, after, limit, wanted, output)

    async def follow(
        self,
        run: str,
        *,
        after: int = 0,
        kinds: Collection[str] | None = None,
        output: bool = True,
    ) -> AsyncGenerator[Event, None]:
        """Every event after the cursor, each once and in order, until the run is over.

        The last one is the run's end, in the worker's words or the owner's.  Where a worker was killed and
        nobody owns the directory, there is none as long as that is so: it goes without, after a second.  So
        it does where an owner finds many lost at once, and the journal alone says how they ended.
        Stopping to iterate stops nothing else.  A slow consumer costs only itself: events
        wait in the log.
        """
        async with aclosing(self.follow_pages(run, after=after, kinds=kinds, output=output)) as pages:
            async for page in pages:
                for event in page.events:
                    yield event

    async def follow_pages(
        self,
        run: str,
        *,
        after: int = 0,
        kinds: Collection[str] | None = None,
        output: bool = True,
        limit: int = FOLLOW_PAGE,
    ) -> AsyncGenerator[Page, None]:
        """As `follow`, in the pages that the events are read in; none is empty."""
        from .following.follow import LastWord

        wanted = kinds_of(kinds)
        row = await self._lookup.row(run)
        last, told, word = False, 0, LastWord()
        with self._newsroom.of(row.run_id, self._lookup.paths(row)) as news:
            while True:
                page = await self._lookup.page_to_follow(
                    row, after, told, limit, wanted, output, news.nonblocking
                )
                if page.events:
                    yield page
                moved, after = page.next_after > after, page.next_after
                if page.end or (last and not moved):
                    return
                if moved and after < page.head:
                    continue
                if not (moved and told):  # the worker has told of these events: then it lives, and goes on
                    seen = await self._lookup.view(row.run_id)
                    row = await self._lookup.row(row.run_id)  # another attempt has another log
                    if seen.imported is not None:
                        return  # where its bundle ends, also one of a run that went on
                    if seen.state in OVER:
                        # The log comes before the journal: once that knows the end, one more page has all.
                        last = row.state is seen.state or not word.may_come(await self._lookup.owned())
                        if not last:
                            await self._lookup.unless_closed(word.moment())
                        continue
                    last, word = False, LastWord()
                told = await self._lookup.told_or_closed(news.after(after, identity_of(seen.worker)))

    def attach(self, run: str, *, after: int = 0) -> Attachment:
        """The run's backlog after the cursor, then what comes live, with its controls at hand."""
        from .controls.attach import Attachment

        return Attachment(self, self._lookup, run, position("after", after))

    async def feed(
        self, *, after: int = 0, limit: int = 100, owner: str | None = None
    ) -> Sequence[FeedEntry]:
        """Changes of state of all runs with ``position > after``, in the order of their commits."""
        return await self._lookup.feed(after, limit, owner)

    async def follow_feed(
        self, *, after: int = 0, owner: str | None = None
    ) -> AsyncGenerator[Sequence[FeedEntry], None]:
        """Every change of state after the cursor, as it is committed, in pages; it never ends by itself."""
        while True:
            # Before the read, or a commit in between would be slept through.
            commit = None if self._commits is None else self._commits.next
            entries = await self._lookup.feed(after, FOLLOW_PAGE, owner)
            if entries:
                yield entries
                after = entries[-1].position
                continue
            await self._lookup.unless_closed(
                asyncio.sleep(_LONGEST_PAUSE) if commit is None else commit.wait()
            )

    async def wait(self, run: str, *, timeout: float | None = None) -> RunView:
        """The run once it is over: finished, or not_started.

        Raises ``OUTCOME_UNKNOWN`` (with run id and evidence in ``details``) for unknown and quarantined
        runs, and those imported before they were over; ``WAIT_TIMEOUT`` after ``timeout`` seconds.
        """
        from .following.follow import WorkerEnd

        self._lookup.check_open()
        check_timeout("timeout", timeout)
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        told = await self._told_end(run, timeout)
        if told is not None and told.state is RunState.FINISHED:
            return told
        with closing(WorkerEnd(self._lookup.log_of)) as end:
            while True:
                seen = await self._lookup.view(run)
                if seen.state in OVER or seen.imported is not None:
                    return _known(seen if seen.head else await self.inspect(run))
                left = None if deadline is None else deadline - loop.time()
                if left is not None and left <= 0:
                    raise _wait_timeout(seen, timeout or 0.0)
                await self._lookup.unless_closed(self._until_news(seen, end, left))

    async def audit(
        self,
        run: str,
        secrets: Sequence[str | bytes],
        *,
        tell: Callable[[int, int], object] = lambda done, of: None,
    ) -> AuditReport:
        """Where anything that is stored about a run holds one of these secrets, as it is or encoded.

        ``tell`` hears, in the loop, how many of how many events are searched.  Raises
        ``INVALID_REQUEST`` for a secret of less than 8 bytes.
        """
        from .reading.audit import audit  # hardly anybody asks

        return await audit(self._lookup, run, secrets, tell)

    # Controls.

    async def stop(
        self, run: str, *, grace: float | None = None, timeout: float | None = None
    ) -> StopReceipt:
        """End the whole tree of a run: TERM, ``grace`` seconds, then KILL; returns when it is over.

        Stopping a run that is over changes nothing.  Raises ``NOT_CONFIRMED`` when that
        cannot be confirmed within ``timeout`` seconds (by default the grace and a bound for
        the kill); it may still happen.  Raises ``NOT_RUNNING`` for a quarantined run.
        """
        return await self._controller.stop(run, grace, timeout)

    async def signal(
        self, run: str, signo: int | str, *, target: str = "leader", timeout: float = 5.0
    ) -> ControlReceipt:
        """Send a signal (15, or ``"TERM"``) to the program's leader, or to its whole ``tree``.

        Raises ``NOT_RUNNING``, ``NOT_CONFIRMED``, ``INVALID_REQUEST``.
        """
        return await self._controller.signal(run, signo, target, timeout)

    async def write_stdin(
        self, run: str, data: BytesLike, *, eof: bool = False, timeout: float = 30.0
    ) -> ControlReceipt:
        """Write to the program's open stdin; the receipt comes when the bytes are in its pipe.

        ``eof`` closes it afterwards.  A large write goes in pieces: ``details["confirmed"]`` of a
        failure says how many bytes are sure to be written.  One that would exceed the run's
        ``max_stdin_bytes`` is an ``INVALID_REQUEST``, and nothing of it is written.  Raises
        ``STDIN_CLOSED``, ``NOT_RUNNING``,
        ``NOT_CONFIRMED``, ``BUSY``, and ``WRITER_BUSY`` while an attached viewer has the input.
        """
        return await self._controller.write_stdin(run, data, eof, timeout)

    async def write_piece(
        self, run: str, piece: BytesLike, *, following: int, eof: bool, timeout: float
    ) -> ControlReceipt:
        """As `write_stdin`, of a write that comes in pieces: ``following`` bytes of it are to come."""
        return await self._controller.write_stdin(run, piece, eof, timeout, following)

    async def resize(self, run: str, columns: int, rows: int, *, timeout: float = 5.0) -> ControlReceipt:
        """Tell the program's terminal its new size; the program gets SIGWINCH.

        Raises ``INVALID_REQUEST`` for a run without one, ``WRITER_BUSY``, ``NOT_RUNNING``, ``NOT_CONFIRMED``.
        """
        return await self._controller.resize(run, columns, rows, timeout)

    async def acknowledge(self, run: str, *, stdout: int = 0, stderr: int = 0) -> None:
        """So many recorded bytes of each stream, from its beginning on, were consumed.

        For a run that was started with a ``window``: its program is held back while more than that is
        ahead of it.  What an `output` event holds is consumed up to its ``offset`` and length; an
        `output.dropped` one counts with its bytes.  Saying less than before, or anything for another run,
        changes nothing; more than there is means all there is by now.  There is no receipt.

        Raises ``NOT_CONFIRMED`` where the worker cannot be reached, ``INVALID_REQUEST``.
        """
        self._lookup.check_open()
        if self._acknowledger is None:
            from .controls.acknowledging import Acknowledger

            self._acknowledger = Acknowledger(self._tell_directly, self._controller.dial)
        await self._acknowledger.acknowledge(run, stdout, stderr)

    # Loaded at the first use: a command line that starts a run neither follows nor controls one.

    @cached_property
    def _controller(self) -> Controller:
        from .controls.controls import Controller

        return Controller(self._lookup, self.wait, self._ask_directly)

    @cached_property
    def _newsroom(self) -> Newsroom:
        from .following.news import Newsroom

        return Newsroom(self._lookup.close_nonblocking)

    # What an owner knows better.

    async def _told_end(self, run: str, timeout: float | None) -> RunView | None:
        """The run by its log, once its worker has told this owner that it is over; None where it has not."""
        return None

    async def _until_news(self, seen: RunView, end: WorkerEnd, timeout: float | None) -> None:
        """Something may have changed about this run's end."""
        await end.wait(seen, timeout)

    async def _ask_directly(
        self, run_id: str, message: dict[str, object], blob: bytes
    ) -> dict[str, object] | None:
        """The worker's answer over a channel that this object holds; None without one."""
        return None

    async def _tell_directly(self, run_id: str, message: dict[str, object]) -> bool:
        """Over a channel that this object holds; False without one."""
        return False


def _known(seen: RunView) -> RunView:
    if seen.state in (RunState.FINISHED, RunState.NOT_STARTED):
        return seen
    raise SupervisorError(
        ErrorCode.OUTCOME_UNKNOWN,
        f"run {seen.id} is {seen.state.value} ({seen.reason or 'when it was exported'}): its outcome cannot "
        "be known",
        phase=Phase.RUN,
        hint=f"`durable-supervisor inspect {seen.id}` shows the evidence; see `resolve`",
        details={
            "run_id": seen.id,
            "state": seen.state.value,
            "reason": seen.reason,
            "evidence": seen.evidence,
        },
    )


def _wait_timeout(seen: RunView, timeout: float) -> SupervisorError:
    return SupervisorError(
        ErrorCode.WAIT_TIMEOUT,
        f"run {seen.id} is still {seen.state.value} after {timeout:g} s",
        phase=Phase.RUN,
        retryable=True,
        hint="wait again, or stop it",
        details={"run_id": seen.id, "state": seen.state.value},
    )
