"""What answers verbs: the supervisor itself, a client of a service, or a session that is either."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Collection, Mapping, Sequence
from typing import Protocol

from ..model.answers import Capacity, ControlReceipt, FeedEntry, ListPage, ReconcileReport, StopReceipt
from ..model.arguments import BytesLike
from ..model.capabilities import Capabilities
from ..model.collecting import GcReport
from ..model.command import Command, Completion, Limits
from ..model.events import Event
from ..model.importing import ImportReport
from ..model.page import Page
from ..model.policy import Policy
from ..model.request import DEFAULT_OWNER, Lifetime
from ..model.run import Run
from ..model.states import RunState
from ..model.view import RunView
from .attached import Attached


class Reading(Protocol):
    """Reading and controls, as `Observer` documents them: they need no owner."""

    async def inspect(self, run: str) -> RunView: ...

    async def list(
        self,
        *,
        limit: int = 100,
        before: int | None = None,
        states: Collection[RunState] | None = None,
        label: tuple[str, str] | None = None,
        owner: str | None = None,
        collected: bool = False,
    ) -> ListPage: ...

    async def events(
        self,
        run: str,
        *,
        after: int = 0,
        limit: int = 100,
        kinds: Collection[str] | None = None,
        output: bool = True,
    ) -> Page: ...

    def follow(
        self,
        run: str,
        *,
        after: int = 0,
        kinds: Collection[str] | None = None,
        output: bool = True,
    ) -> AsyncGenerator[Event, None]: ...

    def attach(self, run: str, *, after: int = 0) -> Attached: ...

    async def feed(
        self, *, after: int = 0, limit: int = 100, owner: str | None = None
    ) -> Sequence[FeedEntry]: ...

    async def wait(self, run: str, *, timeout: float | None = None) -> RunView: ...

    async def stop(
        self, run: str, *, grace: float | None = None, timeout: float | None = None
    ) -> StopReceipt: ...

    async def signal(
        self, run: str, signo: int | str, *, target: str = "leader", timeout: float = 5.0
    ) -> ControlReceipt: ...

    async def write_stdin(
        self, run: str, data: BytesLike, *, eof: bool = False, timeout: float = 30.0
    ) -> ControlReceipt: ...

    async def resize(self, run: str, columns: int, rows: int, *, timeout: float = 5.0) -> ControlReceipt: ...

    async def acknowledge(self, run: str, *, stdout: int = 0, stderr: int = 0) -> None: ...

    @property
    def state_dir(self) -> str: ...

    async def close(self) -> None: ...


class Verbs(Reading, Protocol):
    """All verbs, as `Supervisor` documents them."""

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
    ) -> Run: ...

    async def resolve(self, run: str, action: str = "accept", *, note: str = "") -> RunView: ...

    async def reconcile(self) -> ReconcileReport: ...

    async def gc(
        self,
        *,
        older_than: float | None = None,
        keep: int | None = None,
        max_bytes: int | None = None,
        label: tuple[str, str] | None = None,
        apply: bool = False,
    ) -> GcReport: ...

    async def import_(self, bundle: str | os.PathLike[str]) -> ImportReport: ...

    async def capabilities(self) -> Capabilities: ...

    def capacity(self) -> Capacity | Awaitable[Capacity]: ...  # a supervisor of our own knows it
