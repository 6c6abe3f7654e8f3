"""A person's terminal bound to a run, until the run ends or the person leaves."""

from __future__ import annotations

import asyncio
import errno
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing, asynccontextmanager
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

from durable_supervisor.model.errors import ErrorCode, SupervisorError
from durable_supervisor.model.events import Kind

from . import terminal
from .keys import DetachKeys
from .typed import Typed, ring

if TYPE_CHECKING:
    from durable_supervisor.api.attached import Attached
    from durable_supervisor.model.events import Event

_LAST_WORDS = 1.0  # seconds that leaving waits for what was typed before
# What a refusal of input means to the person who typed it; others end the attachment.
_REFUSALS = {
    ErrorCode.WRITER_BUSY: "another terminal has the input; you are watching",
    ErrorCode.STDIN_CLOSED: "the program takes no more input",
}
_PASSING = frozenset({ErrorCode.NOT_CONFIRMED, ErrorCode.BUSY, ErrorCode.SERVICE_UNAVAILABLE})
# A size that could not be told is told again with the next one.
_HARMLESS = _PASSING | {*_REFUSALS, ErrorCode.NOT_RUNNING, ErrorCode.SUBMISSION_INDETERMINATE}


class Left(Enum):
    """Why a conversation is over."""

    ENDED = "ended"  # all of the run was shown
    DETACHED = "detached"
    HUNG_UP = "hung_up"
    TERMINATED = "terminated"


Show = Callable[["Event"], Awaitable[None]]


class Conversation:
    """``say`` prints a remark to the person.  ``keys``: None where nothing is typed.

    ``raw``: the run has a terminal, and ours is raw.  Such a run's input lease is asked
    for at once; that of a run with a pipe at the first line typed, so that watching it
    keeps nobody else from writing.
    """

    def __init__(
        self,
        attached: Attached,
        say: Callable[[str], None],
        keys: DetachKeys | None = None,
        *,
        raw: terminal.RawTerminal | None = None,
        steal: bool = False,
        read_only: bool = False,
    ) -> None:
        self._attached = attached
        self._say = say
        self._raw = raw
        self._steal = steal  # once: what is lost later was taken by a person who meant it
        self._left: asyncio.Future[Left] = asyncio.get_running_loop().create_future()
        self._resized = asyncio.Event()
        self._sending = self._departing = False
        self._typed = None if keys is None else Typed(keys, self._depart)
        if self._typed is not None:
            self._typed.wanted = not read_only

    async def hold(self, show: Show, before: Sequence[Event] = ()) -> Left:
        """Show every event and send what is typed, until one side has had enough."""
        async with _signals(self._on_signals()):
            work = [self._show(show, before)]
            if self._typed is not None:
                work += [self._send(self._typed), self._tell_losses(), self._follow_size()]
                if self._raw is not None and self._typed.wanted:
                    work.append(self._take_input())
            try:
                return await _first_of(self._left, work)
            finally:
                if self._typed is not None:
                    self._typed.close()

    def _on_signals(self) -> dict[int, Callable[[], None]]:
        leave = self._leave
        found: dict[int, Callable[[], None]] = {
            signal.SIGINT: lambda: leave(Left.DETACHED),
            signal.SIGHUP: lambda: leave(Left.HUNG_UP),
            signal.SIGTERM: lambda: leave(Left.TERMINATED),
            signal.SIGQUIT: lambda: leave(Left.TERMINATED),
        }
        if self._raw is not None:
            found |= {signal.SIGWINCH: self._resized.set, signal.SIGTSTP: partial(self._suspend, self._raw)}
        return found

    def _leave(self, how: Left) -> None:
        if not self._left.done():
            self._left.set_result(how)

    def _depart(self) -> None:
        """The keys that leave were typed: what was typed before them still arrives, if the program reads."""
        self._departing = True
        if self._sending or (self._typed is not None and not self._typed.idle):
            asyncio.get_running_loop().call_later(_LAST_WORDS, self._leave, Left.DETACHED)
        else:
            self._leave(Left.DETACHED)

    def _suspend(self, raw: terminal.RawTerminal) -> None:
        raw.suspend()
        self._resized.set()  # meanwhile another size, perhaps

    async def _show(self, show: Show, before: Sequence[Event]) -> None:
        try:
            for event in before:
                await show(event)
            async with aclosing(aiter(self._attached)) as events:
                async for event in events:
                    if event.kind == Kind.PROGRAM_RELEASED:
                        self._resized.set()  # it may have been queued when we came
                    await show(event)
        except SupervisorError as error:
            if error.details.get("errno") != errno.EIO:
                raise
            self._leave(Left.HUNG_UP)  # no reader is left, before SIGHUP tells
        self._leave(Left.ENDED)

    async def _take_input(self) -> None:
        """Become the writer; failing that, or for a run that is over, a viewer."""
        try:
            if await self._lease():
                self._resized.set()
        except SupervisorError as error:
            self._refused(error)

    async def _lease(self) -> bool:
        steal, self._steal = self._steal, False
        if self._attached.holds_lease or await self._attached.lease(steal=steal):
            return True
        self._watch(
            "another terminal has the input; you are watching (--steal takes it over, Ctrl-C detaches)"
        )
        return False

    async def _send(self, typed: Typed) -> None:
        ended = False
        while not ended:
            data = await typed.next()
            ended = typed.ended  # as of now: what is typed while this is sent comes in its turn
            if ended and self._raw is not None:
                self._leave(Left.HUNG_UP)
                return
            self._sending = True
            try:
                if await self._lease():
                    await self._attached.write_stdin(data, eof=ended)
            except SupervisorError as error:
                self._refused(error)
            self._sending = False
            if self._departing and typed.idle:
                self._leave(Left.DETACHED)

    def _refused(self, error: SupervisorError) -> None:
        if error.code in _REFUSALS:
            self._watch(_REFUSALS[error.code])
        elif error.code is ErrorCode.SUBMISSION_INDETERMINATE:
            self._say("the service went away; what you typed last may not have arrived")
        elif error.code in _PASSING:
            ring()
        elif error.code is not ErrorCode.NOT_RUNNING:  # its end is going to be shown
            raise error

    def _watch(self, words: str) -> None:
        """Keys of a raw terminal are not sent from now on: a person must know who is typing."""
        if self._typed is not None:
            self._typed.wanted = self._raw is None
        self._say(words)

    async def _tell_losses(self) -> None:
        while True:
            await self._attached.lost.wait()
            self._attached.lost.clear()
            self._watch("another terminal has taken over the input; you are watching (Ctrl-C detaches)")

    async def _follow_size(self) -> None:
        told: tuple[int, int] | None = None
        while True:
            await self._resized.wait()
            self._resized.clear()
            size = terminal.size()
            if self._raw is None or size in (None, told) or not self._attached.holds_lease:
                continue
            try:
                await self._attached.resize(*size)
                told = size
            except SupervisorError as error:
                if error.code not in _HARMLESS:
                    raise


async def _first_of(left: asyncio.Future[Left], work: list[Coroutine[Any, Any, None]]) -> Left:
    """How it ended.  Raises what a part of the work raises."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        pending: set[asyncio.Future[Any]] = {left, *tasks}
        while not left.done():
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()
        return left.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def _signals(handlers: dict[int, Callable[[], None]]) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    for signo, handler in handlers.items():
        loop.add_signal_handler(signo, handler)
    try:
        yield
    finally:
        for signo in handlers:
            loop.remove_signal_handler(signo)
