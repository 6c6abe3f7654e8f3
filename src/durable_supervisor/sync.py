"""`run`, `stream` and `spawn` for threads: the same calls, carried out in another thread's loop.

``from durable_supervisor import sync``; ``sync.run(command)``.  Without ``supervisor=`` that loop is the
one of this process's own session.  A `Supervisor` or `Session` is asked in its own loop, so
not by a thread that this loop runs in.  Ctrl-C is to a call here what a cancellation is to its task.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from .api import run as _run
from .api import spawn as _spawn
from .api import stream as _stream
from .api.asked import Options
from .api.errand import Elsewhere, block, following
from .api.lines import Line, Lines
from .api.session import Session
from .api.shared import shared
from .api.whose import is_client, not_a_supervisor, twin
from .model.answers import ControlReceipt, StopReceipt
from .model.arguments import BytesLike
from .model.command import Command
from .model.errors import invalid
from .model.events import Event
from .model.result import RunResult
from .model.terminal import Terminal
from .supervisor.supervisor import Supervisor

if TYPE_CHECKING:
    from .api.verbs import Verbs
    from .client.aio import AsyncClient

__all__ = ["Process", "Stream", "run", "spawn", "stream"]

T = TypeVar("T")


def run(command: Command, *, input: BytesLike | None = None, **options: Unpack[Options]) -> RunResult:  # noqa: A002
    """See `durable_supervisor.run`."""
    asked = _run.asked_of_run(command, input, options)
    home = _Home(options)

    async def finish() -> RunResult:
        return await _run.finish(await home.verbs(), asked)

    try:
        return home.do(finish())
    finally:
        home.close()


def stream(
    command: Command,
    *,
    input: BytesLike | None = None,  # noqa: A002
    capture: bool = False,
    window: int | None = _stream.WINDOW_BYTES,
    **options: Unpack[Options],
) -> Stream:
    """See `durable_supervisor.stream`."""
    asked = _stream.asked_of_stream(command, input, window, options)
    home = _Home(options)
    return Stream(_stream.Stream(asked, home.verbs, capture=capture), home)


def spawn(
    command: Command, *, pty: bool | Terminal = False, capture: bool = False, **options: Unpack[Options]
) -> Process:
    """See `durable_supervisor.spawn`: ``with spawn(command) as process``."""
    asked = _spawn.asked_of_spawn(command, pty, options)
    home = _Home(options)

    async def begin() -> _spawn.Process:
        return await _spawn.begin(await home.verbs(), asked, capture=capture)

    try:
        return Process(home.do(begin()), home)
    except BaseException:
        home.close()
        raise


class Stream:
    """See `durable_supervisor.Stream`."""

    def __init__(self, inner: _stream.Stream, home: _Home) -> None:
        self._inner = inner
        self._home = home

    def __enter__(self) -> Self:
        try:
            self._home.do(self._inner.__aenter__())
        except BaseException:
            self._home.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._home.do(self._inner.__aexit__(kind, error, trace))
        finally:
            self._home.close()

    @property
    def run_id(self) -> str | None:
        return self._inner.run_id

    def __iter__(self) -> Generator[Event, None, None]:
        return self._home.each(self._inner.__aiter__())

    def lines(self) -> Generator[Line, None, None]:
        cut = Lines()  # here, so that it takes one way to the other thread for many of them
        for event in self:
            yield from cut.of(event)
        yield from cut.finish()

    def wait(self) -> RunResult:
        return self._home.do(self._inner.wait())


class Process:
    """See `durable_supervisor.Process`.  Any number of threads may share it."""

    def __init__(self, inner: _spawn.Process, home: _Home) -> None:
        self._inner = inner
        self._home = home

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._home.do(self._inner.__aexit__(kind, error, trace))
        finally:
            self._home.close()

    @property
    def run_id(self) -> str | None:
        return self._inner.run_id

    def write_stdin(self, data: BytesLike, *, eof: bool = False, timeout: float = 30.0) -> ControlReceipt:
        return self._home.do(self._inner.write_stdin(data, eof=eof, timeout=timeout))

    def close_stdin(self, *, timeout: float = 30.0) -> ControlReceipt:
        return self._home.do(self._inner.close_stdin(timeout=timeout))

    def resize(self, columns: int, rows: int, *, timeout: float = 5.0) -> ControlReceipt:
        return self._home.do(self._inner.resize(columns, rows, timeout=timeout))

    def signal(self, signo: int | str, *, target: str = "leader", timeout: float = 5.0) -> ControlReceipt:
        return self._home.do(self._inner.signal(signo, target=target, timeout=timeout))

    def events(self, *, after: int = 0) -> Generator[Event, None, None]:
        return self._home.each(self._inner.events(after=after))

    def terminate(self, grace: float | None = None) -> StopReceipt:
        return self._home.do(self._inner.terminate(grace))

    def wait(self, timeout: float | None = None) -> RunResult:
        return self._home.do(self._inner.wait(timeout))

    def close(self) -> None:
        self.__exit__(None, None, None)


class _Home:
    """Where the calls of a thread are carried out: a loop in another one, and who answers there."""

    def __init__(self, options: Options) -> None:
        self._given = options.get("supervisor")
        self._client: AsyncClient | None = None
        if isinstance(self._given, Supervisor | Session):
            self._loop = _foreign(self._given._loop)
        elif isinstance(self._given, Elsewhere):
            self._loop = self._given.loop
        elif self._given is None or is_client(self._given):
            self._loop = shared().loop()
        else:
            raise not_a_supervisor()

    async def verbs(self) -> Verbs:
        """To be awaited there.  A client's connections are its own thread's: another of the same service."""
        given = self._given
        if given is None:
            return await shared().session()
        if isinstance(given, Supervisor | Session):
            return given
        if isinstance(given, Elsewhere):
            return given.session
        if self._client is None:
            self._client = twin(given)
        return self._client

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return block(work, self._loop)

    def each(self, items: AsyncGenerator[T, None]) -> Generator[T, None, None]:
        try:
            while (item := self.do(following(items))) is not None:
                yield item
        finally:
            self.do(_close(items))

    def close(self) -> None:
        """Idempotent."""
        client, self._client = self._client, None
        if client is not None:
            self.do(client.close())


async def _close(items: AsyncGenerator[Any, None]) -> None:
    await items.aclose()


def _foreign(loop: asyncio.AbstractEventLoop) -> asyncio.AbstractEventLoop:
    """Raises ``INVALID_REQUEST`` for a loop that would be waited for in vain.

    That is one that does not run, be it that it is about to, and the one that this very thread runs.
    """
    if not loop.is_running():
        raise invalid("supervisor", "lives in a loop that does not run", "keep its loop running in a thread")
    try:
        mine = asyncio.get_running_loop()
    except RuntimeError:
        return loop
    if mine is loop:
        raise invalid("supervisor", "lives in the loop of this thread", "await durable_supervisor.run() here")
    return loop
