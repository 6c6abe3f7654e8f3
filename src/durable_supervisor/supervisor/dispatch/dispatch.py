"""From an admitted request to a released program: log, lock, intent, hand over.

The order is the guarantee: the log is created and locked, the intent committed,
and only then does a worker get the locked descriptor.  So from before dispatch
until the worker's death somebody holds the lock, and a free lock means that
nobody will ever run this attempt.

The order stands here once, for owners with an event loop (`dispatcher`) and without (`passing`): it waits
for the journal and for workers, which each has at hand in its own way.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from ...journal.rows import Admission, RunRow
from ...process import forks
from ...process.failpoints import failpoint
from ..admission.admission import Prepared, conflict
from .intent import AdmitWork
from .next_log import MakeLog, create_locked

if TYPE_CHECKING:
    from ...journal.access import JournalAccess
    from ...process.clock import Clock
    from ..opening.opening import Identity
    from ..slots.slots import Slots
    from ..state.state_dir import StateDir

SPEC_SECONDS = 60.0  # for a large stdin; a worker that stands still must not hold up a close for ever
FIRST_WORD_SECONDS = 10.0
FIRST_WORDS = ("queued", "released", "not_started", "finished")
NOT_KNOWN = "not_known"


def new_channel(frame: bytes) -> tuple[socket.socket, socket.socket, memoryview]:
    """Our end, the worker's, which finds as much of its spec's ``frame`` there as fits, and the rest of that.

    Raises OSError.
    """
    ours, theirs = forks.socketpair(socket.SOCK_STREAM)
    try:
        sent = ours.send(frame, socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT)
    except OSError:
        forks.close_socket(ours)
        forks.close_socket(theirs)
        raise
    return ours, theirs, memoryview(frame)[sent:]


class Link(Protocol):
    """Our end of a worker's channel."""

    async def hand_over(self, seconds: float) -> None:
        """Send the rest of the spec.  Raises OSError when the worker has not got all of it by then."""

    def hang_up(self) -> None:
        """The channel is of no more use."""


L = TypeVar("L", bound=Link)


class WorkerPool(Protocol[L]):
    """Where an owner's workers come from."""

    async def assign(self, row: RunRow, frame: bytes, log: int, log_path: str) -> L:
        """Give the locked ``log`` to a worker, and as much of its spec's ``frame`` as fits the channel.

        Closes ``log`` here, whatever happens.  Raises OSError when no worker could be started.
        """

    async def first_word(self, link: L) -> str:
        """Of `FIRST_WORDS`; ``closed`` where the channel ends before; `NOT_KNOWN` where none comes in time.

        A silent worker is not a dead one.
        """


class Dispatch(Generic[L]):
    """Admits and dispatches.  One at a time of each request id: that is the caller's care."""

    def __init__(
        self,
        place: StateDir,
        journal: JournalAccess,
        identity: Identity,
        clock: Clock,
        slots: Slots,
        pool: WorkerPool[L],
        make_log: MakeLog = create_locked,
    ) -> None:
        self._place = place
        self._journal = journal
        self._identity = identity
        self._clock = clock
        self._slots = slots
        self._pool = pool
        self._make_log = make_log

    async def start(self, prepared: Prepared) -> tuple[Admission, str]:
        """The admission, and the worker's first word (``released``, …) for what was dispatched now.

        Raises ``IDEMPOTENCY_CONFLICT``, ``CAPACITY_EXHAUSTED``, ``NO_SPACE``, ``JOURNAL_BEHIND``, what
        the journal raises, and ConnectionResetError for a call that was given up, of which nothing is left.
        """
        if prepared.host.hung_up():
            raise ConnectionResetError("nobody waits for this start any more")
        work = AdmitWork(
            self._place,
            self._identity,
            self._clock,
            self._identity.serials,
            prepared,
            self._slots,
            self._make_log,
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
            frame = prepared.spec_frame(place, paths, queued=work.queued)
        except BaseException:  # no memory, say
            forks.close(log)
            raise
        try:
            link = await self._pool.assign(row, frame, log, paths.log(place.attempt))
        except OSError:  # nobody will ever run this attempt
            return "closed"
        failpoint("start.spawned")
        try:
            await link.hand_over(SPEC_SECONDS)
        except OSError:  # a worker that does not get all of it never begins
            link.hang_up()
            return "closed"
        failpoint("start.handed_over")
        word = await self._pool.first_word(link)
        failpoint("start.answered")
        return word
