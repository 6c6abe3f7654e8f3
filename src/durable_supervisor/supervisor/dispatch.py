"""From an admitted request to a released program: log, lock, intent, hand over.

The order is the guarantee: the log is created and locked, the intent committed,
and only then does a worker get the locked descriptor.  So from before dispatch
until the worker's death somebody holds the lock, and a free lock means that
nobody will ever run this attempt.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from ..journal import runs
from ..journal.connection import Journal
from ..journal.rows import Admission
from ..model.errors import ErrorCode, Phase, SupervisorError
from ..model.ids import new_run_id
from ..process import forks
from ..process.clock import Clock, boot_id
from ..process.failpoints import failpoint
from ..process.locks import try_lock
from ..runlog.create import create_log
from ..runlog.paths import RunPaths, shard_of
from ..runlog.reader import LogReader
from .admission import Place, Prepared, conflict
from .links import WorkerLink
from .opening import RECOVER_HINT, Identity
from .state_dir import StateDir, check_space
from .workers import Workers

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")
Blocking = Callable[[Callable[[], T]], Coroutine[Any, Any, T]]

FIRST_WORD_SECONDS = 10.0
NOT_KNOWN = "not_known"
_NOTHING_WRITTEN = (ErrorCode.BUSY, ErrorCode.NO_SPACE, ErrorCode.INTERNAL)


class Dispatcher:
    """Admits and dispatches, one attempt at a time per request id, many requests at once."""

    def __init__(
        self,
        place: StateDir,
        journal: Journal,
        identity: Identity,
        clock: Clock,
        blocking: Blocking[Any],
        on_news: Callable[[str], None],
        first_serial: int,
        zygote: bool | None,
    ) -> None:
        self.links: dict[str, WorkerLink] = {}
        self._place = place
        self._journal = journal
        self._identity = identity
        self._clock = clock
        self._blocking = blocking
        self._on_news = on_news
        self._workers = Workers(blocking, zygote)
        self._turns: dict[tuple[str, str], asyncio.Lock] = {}
        self._serials = itertools.count(first_serial)

    def close(self) -> None:
        """Let go of every worker.  They go on."""
        for link in list(self.links.values()):
            link.close()
        self._workers.close()

    async def start(self, prepared: Prepared) -> tuple[Admission, str]:
        """The admission, and the worker's first word (``released``, …) for what was dispatched now.

        Raises ``IDEMPOTENCY_CONFLICT``, ``NO_SPACE``, ``JOURNAL_BEHIND``, and what the journal raises.
        """
        request = prepared.request
        turn = self._turns.setdefault((request.owner, request.request_id), asyncio.Lock())
        try:
            async with turn:
                return await self._start(prepared)
        finally:
            if not turn.locked():
                self._turns.pop((request.owner, request.request_id), None)

    async def _start(self, prepared: Prepared) -> tuple[Admission, str]:
        request = prepared.request
        known = await self._journal.read(
            lambda conn: runs.preview(
                conn, request.owner, request.request_id, prepared.digests, prepared.key_id
            )
        )
        if known is not None and known.kind == "conflict":
            raise conflict(known)
        if known is not None and known.kind == "existing":
            return known, NOT_KNOWN
        check_space(self._place)
        place = await self._choose(known)
        failpoint("start.chosen")
        log = await self._blocking(lambda: self._create_log(prepared, place))
        try:
            failpoint("start.log_created")
            admission = await self._commit(prepared, place)
            failpoint("start.committed")
        except BaseException as error:
            self._let_go(place, log, error)
            raise
        return admission, await self._hand_over(prepared, place, log)

    async def _choose(self, known: Admission | None) -> Place:
        """A new run, or the next attempt of one that provably never ran."""
        if known is None:
            serial = next(self._serials)
            return Place(new_run_id(os.urandom), serial, shard_of(serial), 1, 1)
        row = known.row
        reader = LogReader(RunPaths(self._place.runs, row.shard, row.run_id), row.attempt)
        evidence = await self._blocking(lambda: reader.evidence())
        return Place(row.run_id, row.serial, row.shard, row.attempt + 1, evidence.head + 1)

    def _create_log(self, prepared: Prepared, place: Place) -> int:
        header = prepared.header(place, self._identity.directory_id, boot_id(), self._clock.wall_ns())
        try:
            fd = forks.guard(create_log(self._paths(place), header))
            failpoint("start.log_unlocked")
        except FileExistsError:
            raise SupervisorError(
                ErrorCode.JOURNAL_BEHIND,
                f"the journal does not know the log of run {place.run_id}, attempt {place.attempt}",
                phase=Phase.ADMIT,
                hint=RECOVER_HINT,
            ) from None
        try_lock(fd)  # nobody else can have it: the file is new
        return fd

    async def _commit(self, prepared: Prepared, place: Place) -> Admission:
        intent = prepared.intent(place, boot_id(), self._clock.wall_ns())

        def admit(conn: sqlite3.Connection) -> Admission:
            admission = runs.admit(conn, intent)
            failpoint("start.admitting")
            return admission

        admission = await self._journal.write(admit)
        if admission.kind not in ("new", "retry"):
            # Another owner's word cannot come between: the directory is ours alone.
            raise SupervisorError(
                ErrorCode.INTERNAL, "the request was admitted behind our back", phase=Phase.ADMIT
            )
        return admission

    def _let_go(self, place: Place, log: int, error: BaseException) -> None:
        """The start ends before a worker has the log.

        A refusal of the journal proves that there is no intent, so the log was never
        anybody's.  After anything else (a cancelled loop) there may be one, which the log
        then proves never dispatched; without one the next opening sweeps the log away.
        """
        if isinstance(error, SupervisorError) and error.code in _NOTHING_WRITTEN:
            with suppress(OSError):
                os.unlink(self._paths(place).log(place.attempt))
        forks.close(log)

    async def _hand_over(self, prepared: Prepared, place: Place, log: int) -> str:
        """Give the locked log to a worker.  Whatever goes wrong, the evidence says how far it came."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        link = WorkerLink(place.run_id, ours, self._news)
        try:
            path = self._paths(place).log(place.attempt)
            missed = await self._workers.start(place.run_id, theirs.fileno(), log, path)
        except OSError:
            link.close()
            return "closed"
        finally:
            theirs.close()
        failpoint("start.spawned")
        self.links[place.run_id] = link
        try:
            await link.hand_over(prepared.spec_frame(place, self._paths(place), missed))
        except OSError:
            link.close()
            self.links.pop(place.run_id, None)
            return "closed"
        failpoint("start.handed_over")
        try:
            async with asyncio.timeout(FIRST_WORD_SECONDS):
                word = await asyncio.shield(link.first_word)
        except TimeoutError:
            return NOT_KNOWN  # a silent worker is not a dead one
        failpoint("start.answered")
        return word

    def _news(self, run_id: str) -> None:
        link = self.links.get(run_id)
        if link is not None and link.closed:
            del self.links[run_id]
        self._on_news(run_id)

    def _paths(self, place: Place) -> RunPaths:
        return RunPaths(self._place.runs, place.shard, place.run_id)
