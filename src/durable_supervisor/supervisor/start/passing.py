"""An owner that starts one run and is gone: without an event loop, in the thread that asks.

A command line takes longer to load a `Supervisor`, and asyncio with it, than for all that it does.  What
decides is the same code for both (`opening`, `judging`, `dispatch`, `starting`): coroutines that wait for
nothing but what they are given.  What they are given here blocks, so they never wait, and one step takes them
to their end.

Where a directory is to have more of its owner than a start, nothing is started here (None), and whoever
asks opens a `Supervisor`.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractContextManager, AsyncExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ...journal.direct import DirectJournal
from ...model.errors import ErrorCode, SupervisorError
from ...process import forks
from ...process.channel import FrameError, FrameParser
from ...process.clock import Clock, boot_id
from ...process.failpoints import failpoint
from ...process.places import may_be_served
from ...reconcile.judging import Judge
from ...reconcile.observe import Place
from ..admission.admission import Prepared
from ..admission.host import read_host
from ..dispatch.dispatch import FIRST_WORD_SECONDS, FIRST_WORDS, NOT_KNOWN, Dispatch, new_channel
from ..housekeeping import may_have_left_groups
from ..opening.opening import check_in_place, own, refusing_unreadable
from ..slots.ledger import read_ledger
from ..slots.slots import Bounds, Slots
from ..state.state_dir import Ownership
from ..workers.spawn import spawn_or_record
from .starting import Starter

if TYPE_CHECKING:
    from ...journal.rows import RunRow
    from ...model.request import Queueing, StartRequest
    from ...model.run import Run
    from ..opening.opening import Identity
    from ..state.state_dir import StateDir
    from ..workers.prestarted import PrestartedWorker

T = TypeVar("T")

OWNER_SECONDS = 10.0  # for one and the same owner that neither goes nor can be asked
_RECEIVE_BYTES = 64 * 1024


def start(
    place: StateDir,
    request: StartRequest,
    queueing: Queueing,
    prestarted: PrestartedWorker | None,
    *,
    whole: AbstractContextManager[object],
    meanwhile: Callable[[], None],
    tell: Callable[[], None],
) -> Run | None:
    """Own the directory, start the run, let go of both; None where it takes a `Supervisor`.

    ``prestarted``: a worker that loads already; whoever made it closes it.  ``whole`` is entered for what
    must not be interrupted: a start that has begun.  ``meanwhile`` is called while the worker begins,
    ``tell`` where another owner keeps us waiting.  Raises as `Supervisor.open` and `Supervisor.start`.
    """
    if os.path.lexists(place.imported):  # runs of other directories: its journal and files are swept together
        return None
    try:
        return run_through(_start(place, request, queueing, prestarted, whole, meanwhile, tell))
    except SupervisorError as error:
        if error.code is ErrorCode.STATE_DIR_IN_USE and may_be_served(place.path):  # its owner is to be asked
            return None
        raise


def run_through(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine answers that waits for nothing but blocking calls of its own."""
    try:
        work.send(None)
    except StopIteration as end:
        answer: T = end.value
        return answer
    work.close()
    raise RuntimeError("it waits for an event loop")


async def _start(
    place: StateDir,
    request: StartRequest,
    queueing: Queueing,
    prestarted: PrestartedWorker | None,
    whole: AbstractContextManager[object],
    meanwhile: Callable[[], None],
    tell: Callable[[], None],
) -> Run | None:
    clock = Clock()
    async with AsyncExitStack() as undo:
        take = partial(_take, tell=tell)
        _, journal, identity = await own(place, OWNER_SECONDS, undo, DirectJournal.open, take)
        inode = os.lstat(place.journal).st_ino
        slots = Slots(Bounds(), boot_id(), serves_queue=False)
        judge = Judge(journal, Place(place.runs, identity.directory_id, boot_id()), clock, _here, _not_seen)
        with refusing_unreadable(place):
            changed = (await judge.all_open()).changed
            failpoint("open.judged")
            if any(map(may_have_left_groups, changed)):
                await _sweep_groups(journal, identity)
            held, queued = await read_ledger(journal, place.runs, _here)
        if queued or await _owes_sweep(journal, identity):
            return None
        slots.load(held, queued)
        pool = _WorkerPool(prestarted, (journal.write_back, meanwhile))
        undo.callback(pool.close)
        dispatch = Dispatch(place, journal, identity, clock, slots, pool)

        async def judged(run_id: str) -> RunRow:
            await judge.these([run_id])
            return await judge.row(run_id)

        starter = Starter(dispatch.start, judged, _NoLine(), _here, _pause, place.path)
        prepared = Prepared(request, read_host(request.command), identity.key, queueing)
        check_in_place(place, inode)
        with whole:
            return await starter.start(prepared)


async def _take(place: StateDir, wait: float, tell: Callable[[], None]) -> Ownership:
    ownership = Ownership.try_take(place)
    if ownership is not None:
        return ownership
    from ..state.ownership_queue import take_in_turn  # most commands come alone

    return await take_in_turn(place, wait, tell)


async def _owes_sweep(journal: DirectJournal, identity: Identity) -> bool:
    """Was somebody killed who took away the files of collected runs?  (See `Housekeeping.sweeps`.)"""
    if not identity.has_collected:
        return False
    from ...journal.collecting import unswept  # most directories never had anything collected

    return bool(await journal.read(lambda conn: unswept(conn, 0, 1)))


async def _sweep_groups(journal: DirectJournal, identity: Identity) -> None:
    """Now, whatever else is due: to the next owner the same runs are no news."""
    from ..gc.leftovers import Leftovers  # hardly ever was a worker killed

    with suppress(OSError, SupervisorError):  # no reason not to start; an owner that stays looks in any case
        await Leftovers(journal, identity.directory_id, _here).sweep()


async def _here(work: Callable[[], Any]) -> Any:
    """Blocking work, where nobody is kept waiting by it."""
    return work()


async def _pause(seconds: float) -> None:
    time.sleep(seconds)  # noqa: ASYNC251  (there is no loop to hold up)


def _not_seen(run_id: str, error: Exception) -> None:
    """The next owner looks again; a command line has no log to tell of it."""


class _NoLine:
    """Nobody waits for a slot, or this owner would not be here."""

    def line_up(self, row: RunRow) -> None: ...

    def serve(self) -> None: ...

    async def count_again(self) -> None: ...


class _Link:
    """Our end of a worker's channel."""

    def __init__(self, channel: socket.socket, unsent: memoryview) -> None:
        self._channel = channel
        self._unsent = unsent

    async def hand_over(self, seconds: float) -> None:
        if self._unsent:
            self._channel.settimeout(seconds)  # for all of it
            self._channel.sendall(self._unsent, socket.MSG_NOSIGNAL)

    def first_word(self, seconds: float) -> str:
        """As `WorkerPool.first_word`."""
        parser, deadline = FrameParser(), time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._channel.settimeout(left)
            try:
                data = self._channel.recv(_RECEIVE_BYTES)
                frames = parser.feed(data)
            except TimeoutError:
                break
            except (OSError, FrameError):
                data = b""
            if not data:
                self.close()
                return "closed"
            for message, _ in frames:
                if message.get("type") in FIRST_WORDS:
                    return str(message["type"])
        return NOT_KNOWN

    def hang_up(self) -> None:
        self.close()

    def close(self) -> None:
        forks.close_socket(self._channel)


class _WorkerPool:
    """The worker that loads already, or one that is started now."""

    def __init__(self, prestarted: PrestartedWorker | None, meanwhile: Iterable[Callable[[], None]]) -> None:
        self._prestarted = prestarted
        self._meanwhile = meanwhile  # what is to be done while a worker begins
        self._links: list[_Link] = []

    async def assign(self, row: RunRow, frame: bytes, log: int, log_path: str) -> _Link:
        try:
            ours, theirs, unsent = new_channel(frame)
            self._links.append(link := _Link(ours, unsent))
            try:
                if self._prestarted is None or not self._prestarted.give(theirs.fileno(), log):
                    await spawn_or_record(_here, row.run_id, theirs.fileno(), log, log_path)
            finally:
                forks.close_socket(theirs)
        finally:
            forks.close(log)
        return link

    async def first_word(self, link: _Link) -> str:
        for work in self._meanwhile:
            work()
        return link.first_word(FIRST_WORD_SECONDS)

    def close(self) -> None:
        """Let go of whoever has a run: it goes on."""
        for link in self._links:
            link.close()
