"""The owner of a state directory: starts runs, judges them, and reads and controls like anybody."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from ..journal.connection import Journal
from ..journal.listing import all_judged
from ..journal.rows import RunRow
from ..model.command import Command, Completion, Limits, check_timeout
from ..model.errors import ErrorCode
from ..model.ids import new_id
from ..model.progress import Tell, quiet
from ..model.request import DEFAULT_OWNER, NO_LABELS, Lifetime, Queueing, StartRequest
from ..model.run import Run
from ..model.states import OPEN_STATES
from ..process.clock import Clock, boot_id
from ..process.failpoints import failpoint
from ..reconcile.loop import Reconciler
from ..reconcile.observe import Place
from .admission.admission import Host, Prepared
from .admission.host import OwnUmask, read_host
from .admission.refusals import starts_nothing_more
from .following.endings import Endings
from .following.told import ToldEnds
from .housekeeping import Housekeeping
from .loading import load_all
from .loop.logs import report
from .loop.pending import Opening
from .loop.tasks import Tasks
from .observer import Observer
from .opening.opening import Identity, check_in_place, own, refusing_unreadable
from .slots.queue import Queue
from .slots.slots import DEFAULT_QUEUED_RUNS, Bounds, Slots
from .start.dispatcher import Dispatcher
from .start.starting import Starter
from .state import state_dir as directory
from .state.state_dir import Ownership, StateDir
from .workers.links import WorkerLink
from .workers.workers import Source

if TYPE_CHECKING:
    from ..model.answers import Capacity, ReconcileReport, ShutdownReport, StopReceipt
    from ..model.capabilities import Capabilities
    from ..model.collecting import GcReport
    from ..model.importing import ImportReport
    from ..model.policy import Policy
    from ..model.view import RunView
    from .following.follow import WorkerEnd
    from .workers.prestarted import PrestartedWorker

OWNER_WAIT = 10.0  # for short-lived owners, such as another command line


class Supervisor(Observer):
    """Owns one state directory.  Open it with ``async with Supervisor.open() as sup``.

    A guest in its host: no signal handlers, no SIGCHLD, no logging set up, no
    blocking of the loop.  Closing it, or dying, leaves every run alone.
    """

    def __init__(
        self,
        place: StateDir,
        ownership: Ownership,
        journal: Journal,
        ident: Identity,
        clock: Clock,
        source: Source,
        slots: Slots,
    ) -> None:
        super().__init__(place)
        self._ownership, self._admitting = ownership, True
        self._journal, self._commits = journal, journal.bell
        self._identity, self._clock = ident, clock
        self._loop, self._journal_inode = asyncio.get_running_loop(), os.lstat(place.journal).st_ino
        self._evidence = Place(place.runs, ident.directory_id, boot_id())
        self._reconciler = Reconciler(
            journal,
            self._evidence,
            clock,
            on_change=self._changed,
            on_error=report,
            interval=math.inf,
            executor=self._lookup.threads,
            hurried=lambda: slots.scarce,
        )
        self._slots, self._tasks, self._umask = slots, Tasks(), OwnUmask()
        links: dict[str, WorkerLink] = {}
        told = ToldEnds(self._lookup, self._evidence, self._reconciler, links, lambda: slots.scarce)
        self._endings = Endings(self._lookup, self._reconciler, links, self._tasks, told)
        self._dispatcher = Dispatcher(
            place, journal, ident, clock, self._lookup.blocking, self._endings.on_news, links, source, slots
        )
        self._queue = Queue(slots, journal, self._reconciler, clock, lambda *to: self._controller.tell(*to))
        look = self._lookup
        dispatch, judge = self._dispatcher.start, self._reconciler.judge
        self._starter = Starter(dispatch, judge, self._queue, look.in_turn, asyncio.sleep, place.path)
        self._housekeeping = Housekeeping(place, journal, ident, clock, look, self._reconciler, self._tasks)
        self._background: asyncio.Task[None] | None = None
        self._closer: asyncio.Task[None] | None = None

    @classmethod
    def open(  # type: ignore[override]
        cls,
        state_dir: str | os.PathLike[str] | None = None,
        *,
        wait: float = OWNER_WAIT,
        zygote: bool | None = None,
        prestarted: PrestartedWorker | None = None,
        max_concurrent_runs: int | None = None,
        max_runs_per_owner: int | None = None,
        max_queued_runs: int | None = DEFAULT_QUEUED_RUNS,
        serve_queue: bool = True,
    ) -> Opening[Supervisor]:
        """Own ``state_dir`` (else ``$DURABLE_SUPERVISOR_STATE_DIR``, else the user's state directory).

        Use it with ``async with``, or await it and call `close`.  ``wait``: seconds for a short-lived owner.
        ``zygote``: fork workers from a small preloaded process (None: from the second start on) or start
        each by exec (False).  ``prestarted``: a worker that loads already, for the first start.  ``max_…``:
        how many runs may hold a slot (in all, and of one owner) and wait in the queue; None: any number.
        Lower ones than before end nobody.  ``serve_queue``: False for an owner that is only passing: queued
        runs stay for the next.

        Raises ``INVALID_REQUEST``, ``STATE_DIR_IN_USE`` (``details["pid"]``), ``STATE_DIR_REFUSED``,
        ``NO_SPACE``, ``JOURNAL_MISSING``, ``JOURNAL_BEHIND``, ``JOURNAL_MISMATCH``,
        ``JOURNAL_NEWER``, ``JOURNAL_CORRUPT``, ``BUSY``.
        """
        bounds = Bounds(max_concurrent_runs, max_runs_per_owner, max_queued_runs)
        source = Source(zygote, prestarted)
        return Opening(lambda: cls._open(directory.locate(state_dir), wait, source, bounds, serve_queue))

    @classmethod
    async def _open(
        cls, place: StateDir, wait: float, source: Source, bounds: Bounds, stays: bool
    ) -> Supervisor:
        async with AsyncExitStack() as undo:
            ownership, journal, ident = await own(place, wait, undo, _open_journal)
            slots = Slots(bounds, boot_id(), serves_queue=stays)
            with refusing_unreadable(place):
                sup = cls(place, ownership, journal, ident, Clock(), source, slots)
                undo.pop_all()  # it closes what it has
                undo.push_async_callback(sup.close)
                await sup._begin(stays=stays)
            undo.pop_all()
            return sup

    async def _begin(self, *, stays: bool) -> None:
        """Judge what there is, then go on with that.  Raises OSError, and what the journal raises."""
        if stays:
            await self._lookup.blocking(load_all)
        changed = (await self._reconciler.pass_once()).changed
        failpoint("open.judged")
        await self._queue.load(self._place.runs, self._lookup.blocking)
        self._background = asyncio.create_task(self._reconciler.run(), name="reconcile")
        self._tasks.cancel_with(self._background)
        for work in (self._endings.adopt(self._journal), *self._housekeeping.sweeps(changed, stays=stays)):
            self._tasks.spawn_unawaited(work)

    @classmethod
    async def recover(
        cls, state_dir: str | os.PathLike[str] | None = None, *, wait: float = OWNER_WAIT
    ) -> dict[str, object]:
        """Rebuild a missing, outdated or foreign journal from the run logs; executes nothing.

        Answers ``{"added": [run ids], "advanced": […], "kept": […], "conflicts": […]}``.
        """
        from .opening.recovery import recover

        return await recover(directory.locate(state_dir), wait)

    async def close(self) -> None:
        """Let go of the directory.  Runs go on; calls under way are finished first.  Idempotent.

        In a forked copy it does nothing: all that it would close is the original's.
        """
        if self._lookup.forked:
            return
        if self._closer is None:
            self._admit_no_more()
            self._closer = asyncio.create_task(self._close(), name="durable-supervisor-close")
        await asyncio.shield(self._closer)

    async def _close(self) -> None:
        await self._queue.close()
        await self._tasks.settle()  # a start under way is finished whole
        self._lookup.closed = True
        for run_id in self._endings.unfolded():  # what who waited has seen, the journal shall have too
            self._reconciler.mark(run_id)
        if self._background is not None:
            self._background.cancel()
            await asyncio.wait([self._background])
        await self._reconciler.settle()
        self._dispatcher.close()
        self._umask.close()
        self._endings.close()
        # The owner's connection goes last: it alone may write back the -wal file and remove it.
        await super().close()
        await self._journal.close()
        self._ownership.release()

    async def shutdown(self, *, stop_runs: bool = True, timeout: float = 30.0) -> ShutdownReport:
        """Admit nothing more, stop every open run, and close; never longer than about ``timeout`` seconds.

        What could not be confirmed by then is named in the report, and goes on or not.
        """
        from .controls.stopping import stop_all

        check_timeout("timeout", timeout)
        self._lookup.check_open()
        self._admit_no_more()
        await self._queue.close()  # a slot that a stop frees is nobody's
        deadline = self._loop.time() + timeout
        rows: list[RunRow] = []
        if stop_runs:
            await self._tasks.settle(timeout)  # a start under way becomes a run, to be stopped too
            rows = [row for row in await self._journal.read(all_judged) if row.state in OPEN_STATES]
        left = max(0.0, deadline - self._loop.time())
        report = await stop_all([row.run_id for row in rows], lambda run: self.stop(run, timeout=left))
        if rows:
            await self._reconciler.pass_once()
        await self.close()
        return report

    @property
    def journal(self) -> Journal:
        """For figures, and to see whether it answers; never to change a run."""
        return self._journal

    # The owner's verbs.

    async def start(
        self,
        command: Command,
        *,
        request_id: str | None = None,
        limits: Limits | None = None,
        completion: Completion | str = Completion.LEADER,
        labels: Mapping[str, str] | None = None,
        owner: str = DEFAULT_OWNER,
        queue: bool = False,
        priority: int = 0,
        policy: Policy | None = None,
        lifetime: Lifetime | str = Lifetime.DETACHED,
        window: int | None = None,
        host: Host | None = None,
    ) -> Run:
        """Journal the request, hand it to a worker, and return once its program is released (or refused).

        The same request id with the same request is the same run, for ever.  Without a
        ``request_id`` a fresh one is made up.  A cancelled caller leaves a whole start behind.

        ``queue``: where no slot is free, wait for one (the run is ``queued``) instead of being
        refused; of those that wait, a greater ``priority`` (-100 to 100) goes first.  Neither is
        part of the request's identity.  ``host``: the process that asks, where it is not this one.
        ``policy``: how the program is confined.  ``lifetime``: ``scope`` for a run that its worker
        stops when this process (``host``) is gone.  ``window``: hold the program back once so many bytes
        of its output were not acknowledged (`acknowledge`); not part of the request's identity either.

        Raises ``INVALID_REQUEST``, ``IDEMPOTENCY_CONFLICT``, ``CAPACITY_EXHAUSTED``, ``ENFORCEMENT_REFUSED``,
        ``NO_SPACE``, ``BUSY``, ``JOURNAL_MISSING``, ``JOURNAL_MISMATCH``, ``JOURNAL_BEHIND``,
        ``SUPERVISOR_CLOSED``.  A program that cannot be executed is no error here: it is ``not_started``.
        """
        self._lookup.check_open()
        if not self._admitting:
            raise starts_nothing_more()
        request = StartRequest(
            command=command,
            request_id=request_id if request_id is not None else new_id("req", os.urandom),
            limits=command.limits_with(limits) if isinstance(command, Command) else Limits(),
            completion=completion,
            labels=labels if labels is not None else NO_LABELS,
            owner=owner,
            policy=policy,
            lifetime=lifetime,
        )
        queueing = Queueing(queue, priority)
        host = host or read_host(command, self._umask.read)
        prepared = Prepared(
            request, host, self._identity.key, queueing, window=window, generated_id=request_id is None
        )
        check_in_place(self._place, self._journal_inode)
        return await self._tasks.finish(self._starter.start(prepared))

    def capacity(self) -> Capacity:
        """The limits, and how many runs hold a slot and wait for one now."""
        return self._slots.capacity()

    async def capabilities(self) -> Capabilities:
        """What can be enforced of a policy and of limits here; see the function of this name."""
        from .policy.capabilities import capabilities  # all that plans know of; hardly ever asked for

        return await self._lookup.blocking(capabilities)

    async def resolve(
        self, run: str, action: str = "accept", *, note: str = "", by_uid: int | None = None
    ) -> RunView:
        """An operator's audited word on an unknown or quarantined run.

        ``accept``: settle it as it is.  ``kill``: end what is proven to be left of it, then
        judge it anew.  ``wait``: wait until that has ended by itself, then judge.  ``by_uid``:
        whose word it is, where it is not this process's user's.

        Raises ``NOT_RESOLVABLE``, ``INVALID_REQUEST``, ``NOT_CONFIRMED``.
        """
        self._lookup.check_open()
        row = await self._lookup.own(run, ErrorCode.NOT_RESOLVABLE)
        seen = await self._housekeeping.resolver.resolve(row.run_id, action, note, by_uid)
        self._account(await self._lookup.row(seen.id))  # with this word its slot is free
        return seen

    async def reconcile(self) -> ReconcileReport:
        """Judge every open and quarantined run from its evidence, now."""
        from ..model.answers import ReconcileReport

        self._lookup.check_open()
        found = await self._reconciler.pass_once()
        await self._housekeeping.leftovers.sweep()
        return ReconcileReport(found.judged, {row.run_id: row.state.value for row in found.changed})

    async def gc(
        self,
        *,
        older_than: float | None = None,
        keep: int | None = None,
        max_bytes: int | None = None,
        label: tuple[str, str] | None = None,
        apply: bool = False,
        tell: Tell = quiet,
    ) -> GcReport:
        """By `Criteria`, which logs may go; with ``apply`` they go.  ``tell`` hears of ``looking`` and
        ``collecting``.  Raises ``INVALID_REQUEST``, ``NO_SPACE``, ``BUSY``.
        """
        self._lookup.check_open()
        from ..model.collecting import Criteria  # no start pays for it

        asked = Criteria(older_than=older_than, keep=keep, max_bytes=max_bytes, label=label)
        return await self._housekeeping.collector.gc(asked, apply, tell)

    async def import_(self, bundle: str | os.PathLike[str], *, by_uid: int | None = None) -> ImportReport:
        """Take the run in a bundle (a file) in, to be read here as the run of another directory.

        ``by_uid``: as in `resolve`.  Raises ``INVALID_REQUEST``, ``IMPORT_CONFLICT``, ``NO_SPACE``, ``BUSY``.
        """
        self._lookup.check_open()
        return await self._housekeeping.importer.import_(bundle, os.getuid() if by_uid is None else by_uid)

    async def stop(
        self, run: str, *, grace: float | None = None, timeout: float | None = None
    ) -> StopReceipt:
        """As `Observer.stop`; besides, a run that never started will not be retried."""
        from .controls.stopping import mark_stopped

        row = await self._lookup.own(run)
        await mark_stopped(row, self._lookup, self._journal, self._clock)
        receipt = await super().stop(row.run_id, grace=grace, timeout=timeout)
        self._reconciler.mark(row.run_id)
        return receipt

    # Behind them.

    async def _ask_directly(
        self, run_id: str, message: dict[str, object], blob: bytes
    ) -> dict[str, object] | None:
        link = self._dispatcher.links.get(run_id)
        return None if link is None or link.ended else await link.ask(message, blob)

    async def _tell_directly(self, run_id: str, message: dict[str, object]) -> bool:
        link = self._dispatcher.links.get(run_id)
        return link is not None and not link.ended and await link.tell(message)

    async def _until_news(self, seen: RunView, end: WorkerEnd, timeout: float | None) -> None:
        if not await self._dispatcher.until_ended(seen.id, timeout):
            await super()._until_news(seen, end, timeout)

    async def _told_end(self, run: str, timeout: float | None) -> RunView | None:
        return await self._endings.told.wait(run, timeout)

    def _account(self, row: RunRow) -> None:
        self._slots.note(row)
        self._queue.serve()

    def _changed(self, row: RunRow) -> None:
        report(row)
        self._account(row)
        self._endings.changed(row)

    def _admit_no_more(self) -> None:
        self._admitting = False
        self._housekeeping.leave()
        self._endings.leave()


async def _open_journal(path: str, create: bool) -> Journal:
    return await Journal.open(path, create=create)
