"""The service's verbs for threads."""

from __future__ import annotations

import os
from collections.abc import Collection, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Self

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
from .block import deliver, drive
from .info import CAPABILITIES, CAPACITY, INFO, ServiceInfo
from .locate import Place

if TYPE_CHECKING:
    from .attach_sync import SyncAttachment


class Client(Base):
    """The verbs of `Supervisor`, answered by the service of a state directory.

    ``with Client.connect() as client``.  The verbs, their arguments and answers are
    those of `Supervisor`; besides what it raises, each may raise ``SERVICE_UNAVAILABLE``,
    ``SUBMISSION_INDETERMINATE`` (a deed that may have been carried out: it is never sent twice),
    ``PEER_DENIED``, ``OWNER_MISMATCH``, ``SHUTTING_DOWN``, ``BUSY`` and ``FRAME_TOO_LARGE``.

    Any number of threads may share it: each call has a connection to itself.  A call that is
    interrupted gives its connection up; what it asked for may be carried out all the same.
    """

    @classmethod
    def connect(
        cls,
        state_dir: str | os.PathLike[str] | None = None,
        *,
        socket: str | os.PathLike[str] | None = None,
        reconnect: float = RECONNECT_SECONDS,
    ) -> Self:
        """To the service of ``state_dir``, or to the one at ``socket``.

        Without either, ``$DURABLE_SUPERVISOR_SOCKET`` counts, then the default state directory.
        ``reconnect``: for how many seconds `start`, `wait`, `follow` and `follow_feed` look for a
        service that went away, such as one that is restarted.

        Raises ``SERVICE_UNAVAILABLE``, ``UNSUPPORTED_API_VERSION``, ``PEER_DENIED``.
        """
        client = cls(Place.of(state_dir, socket), reconnect)
        drive(client._calls.reach())
        return client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End all connections.  Runs go on.  Idempotent.

        Calls under way get ``SUPERVISOR_CLOSED``; starts and deeds that are out ``SUBMISSION_INDETERMINATE``.
        """
        self._connections.close()

    def info(self) -> ServiceInfo:
        """What the service says of itself, now."""
        return drive(self._calls.do(INFO))

    def capacity(self) -> Capacity:
        """See `Supervisor.capacity`; for the operator."""
        return drive(self._calls.do(CAPACITY))

    def capabilities(self) -> Capabilities:
        """See `Supervisor.capabilities`: of the service, which starts the programs."""
        return drive(self._calls.do(CAPABILITIES))

    def start(
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
        return drive(self._calls.do(call))

    def inspect(self, run: str) -> RunView:
        """See `Observer.inspect`."""
        return drive(self._calls.do(verbs.inspect(run)))

    def list(
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
        return drive(flows.list_runs(self._calls, limit, before, states, label, owner, collected))

    def find(self, run: str, *, owner: str | None = None) -> str:
        """See `Observer.find`."""
        return drive(flows.find(self._calls, run, owner))

    def events(
        self,
        run: str,
        *,
        after: int = 0,
        limit: int = 100,
        kinds: Collection[str] | None = None,
        output: bool = True,
    ) -> Page:
        """See `Observer.events`.  A page may hold fewer than ``limit``; go on with its ``next_after``."""
        return drive(self._calls.do(verbs.events(run, after, limit, kinds, output)))

    def follow(
        self,
        run: str,
        *,
        after: int = 0,
        kinds: Collection[str] | None = None,
        output: bool = True,
    ) -> Generator[Event, None, None]:
        """See `Observer.follow`.  Outlives the service: each seq comes once, whoever serves it."""
        for batch in deliver(flows.follow(self._calls, run, after, kinds, output)):
            yield from batch

    def attach(self, run: str, *, after: int = 0) -> SyncAttachment:
        """See `Observer.attach`; for threads: iterate in one, type in another."""
        from .attach_sync import SyncAttachment

        return SyncAttachment(self, run, position("after", after))

    def feed(self, *, after: int = 0, limit: int = 100, owner: str | None = None) -> Sequence[FeedEntry]:
        """See `Observer.feed`."""
        return drive(self._calls.do(verbs.feed(after, limit, owner)))

    def follow_feed(
        self, *, after: int = 0, owner: str | None = None
    ) -> Generator[Sequence[FeedEntry], None, None]:
        """See `Observer.follow_feed`.  Outlives the service, as `follow` does."""
        yield from deliver(flows.follow_feed(self._calls, after, owner))

    def wait(self, run: str, *, timeout: float | None = None) -> RunView:
        """See `Observer.wait`.  Outlives the service."""
        return drive(flows.wait(self._calls, run, timeout))

    def stop(self, run: str, *, grace: float | None = None, timeout: float | None = None) -> StopReceipt:
        """See `Supervisor.stop`."""
        return drive(self._calls.do(verbs.stop(run, grace, timeout)))

    def signal(
        self, run: str, signo: int | str, *, target: str = "leader", timeout: float = 5.0
    ) -> ControlReceipt:
        """See `Observer.signal`."""
        return drive(self._calls.do(verbs.signal(run, signo, target, timeout)))

    def write_stdin(
        self, run: str, data: BytesLike, *, eof: bool = False, timeout: float = 30.0
    ) -> ControlReceipt:
        """See `Observer.write_stdin`.

        A large write goes in pieces: ``details["confirmed"]`` of a failure says how many bytes are written.
        """
        return drive(flows.write_stdin(self._calls, run, data, eof, timeout))

    def resize(self, run: str, columns: int, rows: int, *, timeout: float = 5.0) -> ControlReceipt:
        """See `Observer.resize`."""
        return drive(self._calls.do(verbs.resize(run, columns, rows, timeout)))

    def acknowledge(self, run: str, *, stdout: int = 0, stderr: int = 0) -> None:
        """See `Observer.acknowledge`.  Outlives the service."""
        return drive(flows.acknowledge(self._calls, run, stdout, stderr))

    def resolve(self, run: str, action: str = "accept", *, note: str = "") -> RunView:
        """See `Supervisor.resolve`."""
        return drive(self._calls.do(verbs.resolve(run, action, note)))

    def reconcile(self) -> ReconcileReport:
        """See `Supervisor.reconcile`; for the operator."""
        return drive(self._calls.do(verbs.reconcile()))

    def gc(
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
        return drive(self._calls.do(verbs.gc(asked, apply)))

    def import_(self, bundle: str | os.PathLike[str]) -> ImportReport:
        """See `Supervisor.import_`; for the operator.  The service opens the file."""
        return drive(self._calls.do(verbs.import_(bundle)))
