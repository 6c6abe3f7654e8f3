"""A supervisor for any kind of test: it lives in a thread of its own, and is asked from everywhere."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from ..api.errand import Elsewhere, block, following, send
from ..api.session import Session
from ..api.shared import shared
from ..model.events import Event

P = ParamSpec("P")
T = TypeVar("T")
Verb = Callable[Concatenate[Session, P], Coroutine[Any, Any, T]]


def _awaited(verb: Verb[P, T]) -> Callable[Concatenate[HostedSupervisor, P], Coroutine[Any, Any, T]]:
    """The same verb for a task in any loop."""

    @wraps(verb)
    async def ask(self: HostedSupervisor, /, *args: P.args, **options: P.kwargs) -> T:
        return await send(verb(self.session, *args, **options), self.loop)

    return ask


def _blocking(verb: Verb[P, T]) -> Callable[Concatenate[SyncVerbs, P], T]:
    """The same verb for a thread."""

    @wraps(verb)
    def ask(self: SyncVerbs, /, *args: P.args, **options: P.kwargs) -> T:
        return block(verb(self.hosted.session, *args, **options), self.hosted.loop)

    return ask


class SyncVerbs:
    """The verbs of `Session`, for tests without a loop: ``durable_supervisor.sync``."""

    def __init__(self, hosted: HostedSupervisor) -> None:
        self.hosted = hosted

    start = _blocking(Session.start)
    inspect = _blocking(Session.inspect)
    list = _blocking(Session.list)
    events = _blocking(Session.events)
    wait = _blocking(Session.wait)
    stop = _blocking(Session.stop)
    signal = _blocking(Session.signal)
    write_stdin = _blocking(Session.write_stdin)
    acknowledge = _blocking(Session.acknowledge)
    resize = _blocking(Session.resize)
    resolve = _blocking(Session.resolve)
    reconcile = _blocking(Session.reconcile)

    def follow(self, run: str, **options: Any) -> Generator[Event, None, None]:
        """See `Observer.follow`."""
        events = self.hosted.session.follow(run, **options)
        try:
            while (event := block(following(events), self.hosted.loop)) is not None:
                yield event
        finally:
            block(_closed(events), self.hosted.loop)


class HostedSupervisor(Elsewhere):
    """The verbs of `Session`, for a task in any loop; those of ``sync`` for a thread without one.

    It is the session that `run`, `stream` and `spawn` use where they are given none: so one state
    directory serves the application under test and the test that looks after it.
    """

    def __init__(self) -> None:
        loop = shared().loop()
        super().__init__(block(shared().session(), loop), loop)
        self.sync = SyncVerbs(self)

    @property
    def state_dir(self) -> str:
        return self.session.state_dir

    start = _awaited(Session.start)
    inspect = _awaited(Session.inspect)
    list = _awaited(Session.list)
    events = _awaited(Session.events)
    wait = _awaited(Session.wait)
    stop = _awaited(Session.stop)
    signal = _awaited(Session.signal)
    write_stdin = _awaited(Session.write_stdin)
    acknowledge = _awaited(Session.acknowledge)
    resize = _awaited(Session.resize)
    resolve = _awaited(Session.resolve)
    reconcile = _awaited(Session.reconcile)


async def _closed(events: AsyncGenerator[Event, None]) -> None:
    await events.aclose()
