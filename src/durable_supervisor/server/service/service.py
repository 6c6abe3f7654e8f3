"""What all handlers share: the supervisor behind them, and the service's own state."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from aiohttp import web
from pydantic import BaseModel

from ...model.errors import invalid
from ...model.ids import RUN_ID_LENGTH
from ...supervisor.supervisor import Supervisor
from ..requests.errors import crowded, shutting_down
from ..requests.peers import Caller
from .metrics import Metrics

T = TypeVar("T")
_Form = TypeVar("_Form", bound=BaseModel)

Phase = Literal["accepting", "draining"]
Kind = Literal["daemon", "embedded"]

HEARTBEAT_SECONDS = 15.0
STALL_SECONDS = 30.0


class Service:
    """One supervisor on one socket."""

    def __init__(
        self,
        supervisor: Supervisor,
        callers: Mapping[int, Caller],
        max_connections: int,
        metrics: Metrics,
        *,
        kind: Kind = "embedded",
        heartbeat: float = HEARTBEAT_SECONDS,
        stall: float = STALL_SECONDS,
    ) -> None:
        self.supervisor = supervisor
        self.callers = callers
        self.max_connections = max_connections
        self.metrics = metrics
        self.kind = kind
        # Against root, who could end the service, nobody needs a share, nor root against its own user.
        shared = not set(callers) <= {os.geteuid(), 0}
        self.max_of_one_user = _most(max_connections) if shared else max_connections
        self._max_waiting = _most(max_connections)
        self._max_waiting_of_one_user = _most(self._max_waiting) if shared else self._max_waiting
        self.heartbeat = heartbeat  # seconds between two signs of life to a quiet follower
        self.stall = stall  # seconds that a follower may take nothing before it is dropped
        self.started_ns = time.time_ns()
        self.pid = os.getpid()
        self.draining = asyncio.Event()
        self._waiting: Counter[int] = Counter()  # by uid
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def phase(self) -> Phase:
        return "draining" if self.draining.is_set() else "accepting"

    @property
    def waiting(self) -> int:
        """Calls that stay."""
        return self._waiting.total()

    @contextmanager
    def place_to_wait(self, uid: int) -> Iterator[None]:
        """For a call that stays: a quarter of the connections is kept for those that do not.

        Raises ``BUSY``.
        """
        if self.waiting >= self._max_waiting or self._waiting[uid] >= self._max_waiting_of_one_user:
            raise crowded("followers and waiters")
        self._waiting[uid] += 1
        try:
            yield
        finally:
            self._waiting[uid] -= 1

    @contextmanager
    def follower(self) -> Iterator[None]:
        """Count one more open stream, for the metrics."""
        self.metrics.followers.inc()
        try:
            yield
        finally:
            self.metrics.followers.dec()

    async def whole(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it to its end, even when the client that asked for it vanishes."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    async def unless_draining(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it, but give it up once the service drains.  Raises ``SHUTTING_DOWN``."""
        doing = asyncio.ensure_future(work)
        draining = asyncio.ensure_future(self.draining.wait())
        try:
            await asyncio.wait({doing, draining}, return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                raise shutting_down()
            return doing.result()
        finally:
            draining.cancel()
            doing.cancel()

    async def finish(self, timeout: float) -> None:
        """Wait for what `whole` has begun."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=timeout)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # its caller may be gone, and then nobody else looks


def _most(places: int) -> int:
    """Of places that some must not take from others: three quarters."""
    return places - places // 4


@dataclass(frozen=True, slots=True)
class Call:
    """One request, checked: who asks, and with which parameters and body."""

    request: web.Request
    service: Service
    caller: Caller
    query: dict[str, Any] = field(default_factory=dict)
    body: Any = None

    @property
    def supervisor(self) -> Supervisor:
        return self.service.supervisor

    def place_to_wait(self) -> AbstractContextManager[None]:
        """See `Service.place_to_wait`: this caller's."""
        return self.service.place_to_wait(self.caller.uid)

    def form(self, model: type[_Form]) -> _Form:
        """The body, as the model that the route has declared."""
        if not isinstance(self.body, model):
            raise invalid("body", "is missing")
        return self.body

    async def run(self) -> str:
        """The full id of the run in the path.

        Raises ``UNKNOWN_RUN``, for another's run exactly as for one that does not exist,
        ``AMBIGUOUS_RUN``, ``INVALID_REQUEST``.
        """
        asked = self.request.match_info["run"]
        if not (asked.isascii() and asked.isalnum() and len(asked) <= RUN_ID_LENGTH):
            raise invalid("run", "is no run id, nor the beginning of one", "run_id of what start answered")
        return await self.supervisor.find(asked, owner=self.caller.sees)
