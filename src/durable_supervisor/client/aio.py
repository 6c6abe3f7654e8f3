"""The service's verbs for asyncio."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Generator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, Self

from ..model.answers import (
    Capacity,
    ControlReceipt,
    FeedEntry,
    ListPage,
    ReconcileReport,
    StopReceipt,
)
from ..model.arguments import BytesLike, position
from ..model.capabilities import Capabilities
from ..model.collecting import Criteria, GcReport
from ..model.command import Command, Completion, Limits
from ..model.events import Event
from ..model.importing import ImportReport
from ..model.page import Page
from ..model.policy import Policy
from ..model.request import DEFAULT_OWNER, Lifetime, Queueing
from ..model.run import Run
from ..model.states import RunState
from ..model.view import RunView
from . import flows, verbs
from .base import RECONNECT_SECONDS, Base
from .drive import deliver, drive
from .info import CAPABILITIES, CAPACITY, INFO, ServiceInfo
from .locate import Place

if TYPE_CHECKING:
    from .attach import Attachment
    from .websocket import WebSocket


class AsyncClient(Base):
    """The verbs of `Supervisor`, answered by the service of a state directory.

    ``async with AsyncClient.connect() as client``.  The verbs, their arguments and answers are
    those of `Supervisor`; besides what it raises, each may raise ``SERVICE_UNAVAILABLE``,
    ``SUBMISSION_INDETERMINATE`` (a deed that may have been carried out: it is never sent twice),
    ``PEER_DENIED``, ``OWNER_MISMATCH``, ``SHUTTING_DOWN``, ``BUSY`` and ``FRAME_TOO_LARGE``.

    Any number of tasks of one event loop may share it: each call has a connection to itself.  A
    cancelled call gives its connection up; what it asked for may be carried out all the same.
    """

    @classmethod
    def connect(
        cls,
        state_dir: str | os.PathLike[str] | None = None,
        *,
        socket: str | os.PathLike[str] | None = None,
        reconnect: float = RECONNECT_SECONDS,
    ) -> Connecting:
        """To the service of ``state_dir``, or to the one at ``socket``: await it, or enter it.

        Without either, ``$DURABLE_SUPERVISOR_SOCKET`` counts, then the default state directory.
        ``reconnect``: for how many seconds `start`, `wait`, `follow` and `follow_feed` look for a
        service that went away, such as one that is restarted.

        Raises ``SERVICE_UNAVAILABLE``, ``UNSUPPORTED_API_VERSION``, ``PEER_DENIED``.
        """
        return Connecting(cls(Place.of(state_dir, socket), reconnect))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End all connections.  Runs go on.  Idempotent.

        Calls under way get ``SUPERVISOR_CLOSED``; starts and deeds that are out ``SUBMISSION_INDETERMINATE``.
        """
        self._connections.close()

    async def info(self) -> ServiceInfo:
        """What the service says of itself, now."""
        return await drive(self._calls.do(INFO))

    async def capacity(self) -> Capacity:
        """See `Supervisor.capacity`; for the operator."""
        return await drive(self._calls.do(CAPACITY))

    async def capabilities(self) -> Capabilities:
        """See `Supervisor.capabilities`: of the service, which starts the programs."""
        return await drive(self._calls.do(CAPABILITIES))

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
        """See `Supervisor.start`.  Sent again after a lost connection: its request id makes that safe.

        ``owner``: the default is the caller's own.
        """
        request = self._request(command, request_id, limits, completion, labels, owner, policy, lifetime)
        call = self._start(request, Queueing(queue, priority), window)
        return await drive(self._calls.do(call))

    async def inspect(self, run: str) -> RunView:
        """See `Observer.inspect`."""
        return await drive(self._calls.do(verbs.inspect(run)))

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
        """See `Observer.list`."""
        return await drive(flows.list_runs(self._calls, limit, before, states, label, owner, collected))

    async def find(self, run: str, *, owner: str | None = None) -> str:
        """See `Observer.find`."""
        return await drive(flows.find(self._calls, run, owner))

    async def events(
        self,
        run: str,
        *,
        after: int = 0,
        limit: int = 100,
        kinds: Collection[str] | None = None,
        output: bool = True,
    ) -> Page:
        """See `Observer.events`.  A page may hold fewer than ``limit``; go on with its ``next_after``."""
        return await drive(self._calls.do(verbs.events(run, after, limit, kinds, output)))

    async def follow(
        self,
        run: str,
        *,
        after: int = 0,
        kinds: Collection[str] | None = None,
        output: bool = True,
    ) -> AsyncGenerator[Event, None]:
        """See `Observer.follow`.  Outlives the service: each seq comes once, whoever serves it."""
        async with aclosing(deliver(flows.follow(self._calls, run, after, kinds, output))) as batches:
            async for batch in batches:
                for event in batch:
                    yield event

    def attach(self, run: str, *, after: int = 0) -> Attachment:
        """See `Observer.attach`."""
        from .attach import Attachment

        return Attachment(self, run, position("after", after))

    async def feed(
        self, *, after: int = 0, limit: int = 100, owner: str | None = None
    ) -> Sequence[FeedEntry]:
        """See `Observer.feed`."""
        return await drive(self._calls.do(verbs.feed(after, limit, owner)))

    async def follow_feed(
        self, *, after: int = 0, owner: str | None = None
    ) -> AsyncGenerator[Sequence[FeedEntry], None]:
        """See `Observer.follow_feed`.  Outlives the service, as `follow` does."""
        async with aclosing(deliver(flows.follow_feed(self._calls, after, owner))) as batches:
            async for batch in batches:
                yield batch

    async def wait(self, run: str, *, timeout: float | None = None) -> RunView:
        """See `Observer.wait`.  Outlives the service."""
        return await drive(flows.wait(self._calls, run, timeout))

    async def stop(
        self, run: str, *, grace: float | None = None, timeout: float | None = None
    ) -> StopReceipt:
        """See `Supervisor.stop`."""
        return await drive(self._calls.do(verbs.stop(run, grace, timeout)))

    async def signal(
        self, run: str, signo: int | str, *, target: str = "leader", timeout: float = 5.0
    ) -> ControlReceipt:
        """See `Observer.signal`."""
        return await drive(self._calls.do(verbs.signal(run, signo, target, timeout)))

    async def write_stdin(
        self, run: str, data: BytesLike, *, eof: bool = False, timeout: float = 30.0
    ) -> ControlReceipt:
        """See `Observer.write_stdin`.

        A large write goes in pieces: ``details["confirmed"]`` of a failure says how many bytes are written.
        """
        return await drive(flows.write_stdin(self._calls, run, data, eof, timeout))

    async def resize(self, run: str, columns: int, rows: int, *, timeout: float = 5.0) -> ControlReceipt:
        """See `Observer.resize`."""
        return await drive(self._calls.do(verbs.resize(run, columns, rows, timeout)))

    async def acknowledge(self, run: str, *, stdout: int = 0, stderr: int = 0) -> None:
        """See `Observer.acknowledge`.  Outlives the service."""
        return await drive(flows.acknowledge(self._calls, run, stdout, stderr))

    async def resolve(self, run: str, action: str = "accept", *, note: str = "") -> RunView:
        """See `Supervisor.resolve`."""
        return await drive(self._calls.do(verbs.resolve(run, action, note)))

    async def reconcile(self) -> ReconcileReport:
        """See `Supervisor.reconcile`; for the operator."""
        return await drive(self._calls.do(verbs.reconcile()))

    async def gc(
        self,
        *,
        older_than: float | None = None,
        keep: int | None = None,
        max_bytes: int | None = None,
        label: tuple[str, str] | None = None,
        apply: bool = False,
    ) -> GcReport:
        """See `Supervisor.gc`; for the operator."""
        asked = Criteria(older_than=older_than, keep=keep, max_bytes=max_bytes, label=label)
        return await drive(self._calls.do(verbs.gc(asked, apply)))

    async def import_(self, bundle: str | os.PathLike[str]) -> ImportReport:
        """See `Supervisor.import_`; for the operator.  The service opens the file."""
        return await drive(self._calls.do(verbs.import_(bundle)))

    @asynccontextmanager
    async def _websocket(self, target: str) -> AsyncIterator[WebSocket]:
        """A WebSocket on a connection of its own, e.g. ``/v1/runs/<run>/attach?after=0``."""
        from .websocket import WebSocket  # what it is made of, no other verb needs

        link = await drive(self._connections.dial())
        with self._connections.using(link):
            websocket = await WebSocket.open(link, target)
            try:
                yield websocket
            finally:
                await websocket.close()


class Connecting:
    """A client about to connect: ``async with`` it, or await it."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    def __await__(self) -> Generator[Any, None, AsyncClient]:
        return self._connect().__await__()

    async def __aenter__(self) -> AsyncClient:
        return await self._connect()

    async def __aexit__(self, *exc: object) -> None:
        await self._client.close()

    async def _connect(self) -> AsyncClient:
        await drive(self._client._calls.reach())
        return self._client
