"""One face for an application, whether it owns the state directory or somebody else does."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

from ..model.answers import Capacity, ReconcileReport, StopReceipt
from ..model.arguments import absolute
from ..model.capabilities import Capabilities
from ..model.collecting import GcReport
from ..model.command import Command, Completion, Limits
from ..model.errors import ErrorCode, SupervisorError
from ..model.ids import new_id
from ..model.importing import ImportReport
from ..model.platform import check_platform
from ..model.policy import Policy
from ..model.request import DEFAULT_OWNER, Lifetime
from ..model.run import Run
from ..model.states import OPEN_STATES
from ..model.view import RunView
from ..supervisor.following.follow import WorkerEnd
from ..supervisor.loop.logs import logger
from ..supervisor.observer import Observer
from ..supervisor.state import state_dir as directory
from ..supervisor.state.state_dir import StateDir
from .election import Terms
from .owner import Owner
from .seat import OwnSeat, Role, ServedSeat
from .verbs import Verbs

_LOOK_AGAIN = 1.0  # seconds


class Session(Observer):
    """The verbs of `Supervisor`, whoever owns the state directory: this process or another.

    Reading, following, attaching and controls go to the files and workers themselves, so that
    the death of an owner does not touch them.  What takes an owner (`start`, `stop`, `resolve`,
    `reconcile`) is done here, or asked of the process that owns the directory, over its socket.

    When that process goes, one of the sessions that stand by takes its place: it judges every
    run, starts what is queued, and serves the others.  A daemon (`serve`) has ten seconds to come
    back first; calls that take an owner wait so long.  A `start` goes on under the request id
    it was sent with.  Nothing else that may have been carried out is sent a second time:
    ``SUBMISSION_INDETERMINATE``.
    """

    def __init__(self, place: StateDir, owner: Owner) -> None:
        super().__init__(place)
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._standing_by = asyncio.create_task(self._stand_by(), name="durable-supervisor-standby")
        self._closer: asyncio.Task[None] | None = None

    @classmethod
    async def elect(cls, terms: Terms) -> Session:
        """Own the directory or find its owner: see `api.open`."""
        check_platform()
        place = StateDir(terms.state_dir)
        directory.check(place)
        owner = Owner(terms)
        try:
            await owner.seat()
        except BaseException:  # given up, perhaps in the middle of an election, which would go on
            await owner.close()
            raise
        return cls(place, owner)

    @property
    def role(self) -> Role:
        """``owner``: this process owns the directory.  ``client``: another does, or nobody just now."""
        return "owner" if self._own() is not None else "client"

    async def close(self) -> None:
        """Let go of the directory, or of the connection.  Runs go on.  Idempotent.

        Sessions that were served by this one elect another owner.  In a forked copy it does
        nothing: all that it would close is the original's.
        """
        if self._lookup.forked:
            return
        if self._closer is None:
            self._closer = asyncio.create_task(self._close(), name="durable-supervisor-close")
        await asyncio.shield(self._closer)

    async def _close(self) -> None:
        self._lookup.closed = True
        self._standing_by.cancel()
        await asyncio.wait([self._standing_by])
        await super().close()
        await self._owner.close()

    # What takes an owner.

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
    ) -> Run:
        """As `Supervisor.start`.  The request id is fixed before anything is sent."""
        self._lookup.check_open()
        chosen = request_id if request_id is not None else new_id("req", os.urandom)
        return await self._owner.ask(
            lambda verbs: verbs.start(
                command,
                request_id=chosen,
                limits=limits,
                completion=completion,
                labels=labels,
                owner=owner,
                queue=queue,
                priority=priority,
                policy=policy,
                lifetime=lifetime,
                window=window,
            )
        )

    async def stop(
        self, run: str, *, grace: float | None = None, timeout: float | None = None
    ) -> StopReceipt:
        """As `Supervisor.stop`; where no owner answers, as `Observer.stop`, which needs none."""
        self._lookup.check_open()
        if self._owner.vacant and (await self._lookup.row(run)).state in OPEN_STATES:
            return await super().stop(run, grace=grace, timeout=timeout)
        try:
            return await self._owner.ask(lambda verbs: verbs.stop(run, grace=grace, timeout=timeout))
        except SupervisorError as error:
            if error.code is not ErrorCode.STATE_DIR_IN_USE:
                raise
            return await super().stop(run, grace=grace, timeout=timeout)

    async def resolve(self, run: str, action: str = "accept", *, note: str = "") -> RunView:
        """As `Supervisor.resolve`."""
        self._lookup.check_open()
        return await self._owner.ask(lambda verbs: verbs.resolve(run, action, note=note))

    async def reconcile(self) -> ReconcileReport:
        """As `Supervisor.reconcile`."""
        self._lookup.check_open()
        return await self._owner.ask(lambda verbs: verbs.reconcile())

    async def gc(
        self,
        *,
        older_than: float | None = None,
        keep: int | None = None,
        max_bytes: int | None = None,
        label: tuple[str, str] | None = None,
        apply: bool = False,
    ) -> GcReport:
        """As `Supervisor.gc`."""
        self._lookup.check_open()
        return await self._owner.ask(
            lambda verbs: verbs.gc(
                older_than=older_than, keep=keep, max_bytes=max_bytes, label=label, apply=apply
            )
        )

    async def import_(self, bundle: str | os.PathLike[str]) -> ImportReport:
        """As `Supervisor.import_`: the owner reads the file, so it must see it under the same path."""
        self._lookup.check_open()
        path = absolute("bundle", bundle)
        return await self._owner.ask(lambda verbs: verbs.import_(path))

    async def capabilities(self) -> Capabilities:
        """As `Supervisor.capabilities`: of the owner, which starts the programs."""
        self._lookup.check_open()
        return await self._owner.ask(lambda verbs: verbs.capabilities())

    async def capacity(self) -> Capacity:
        """As `Supervisor.capacity`: of the owner, so that it is awaited here."""
        self._lookup.check_open()
        return await self._owner.ask(_capacity)

    # Behind them.

    async def _stand_by(self) -> None:
        """While somebody else owns the directory: take its place, or turn to who has, as soon as it goes."""
        seat = await self._owner.seat()
        while isinstance(seat, ServedSeat):
            try:
                await seat.gone()
                seat = await self._owner.seat(lost=seat)
            except SupervisorError as error:  # whoever has it serves nobody, and may not stay for long
                logger().warning("no_owner_answers", error=error.code.value, message=error.message)
            if isinstance(seat, ServedSeat):
                # A crowded service ends idle connections: two that need its room must not chase each other.
                await asyncio.sleep(_LOOK_AGAIN)

    def _own(self) -> Observer | None:
        """Our own supervisor knows its runs better than their logs do."""
        seat = self._owner.current
        return seat.supervisor if isinstance(seat, OwnSeat) else None

    async def _until_news(self, seen: RunView, end: WorkerEnd, timeout: float | None) -> None:
        own = self._own()
        if own is None:
            await super()._until_news(seen, end, timeout)
        else:
            await own._until_news(seen, end, timeout)

    async def _ask_directly(
        self, run_id: str, message: dict[str, object], blob: bytes
    ) -> dict[str, object] | None:
        own = self._own()
        return None if own is None else await own._ask_directly(run_id, message, blob)

    async def _tell_directly(self, run_id: str, message: dict[str, object]) -> bool:
        own = self._own()
        return own is not None and await own._tell_directly(run_id, message)


async def _capacity(verbs: Verbs) -> Capacity:
    answer = verbs.capacity()
    return answer if isinstance(answer, Capacity) else await answer
