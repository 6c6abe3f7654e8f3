"""`stream`: a program's output as it comes, and no faster than it is taken."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from types import TracebackType
from typing import Final, Self, Unpack

from ..model.command import STDIN_OPEN, Command
from ..model.errors import invalid
from ..model.events import Event
from ..model.result import RunResult
from .asked import CALL_LIMITS, Asked, Input, Options, ask
from .ending import events_of
from .held import Held
from .lines import Line, Lines
from .verbs import Verbs
from .whose import verbs_of
from .window import Taken

WINDOW_BYTES: Final = 256 * 1024


def stream(
    command: Command,
    *,
    input: Input | None = None,  # noqa: A002
    capture: bool = False,
    window: int | None = WINDOW_BYTES,
    **options: Unpack[Options],
) -> Stream:
    """``async with stream(command) as events``: start ``command``, and iterate over what it does.

    ``input``: its stdin, as for `run`.  ``capture``: the result has all the output that is kept, too.
    ``window``: how many bytes of each output stream the program may be ahead of the iteration, before
    it is held back as by a full pipe; None: it never is.  The others: `Options`.

    Leaving the context stops a program that still runs, and returns when nothing of it is left.
    Entering raises what `run` does before anything was executed.
    """
    asked = asked_of_stream(command, input, window, options)
    return Stream(asked, lambda: verbs_of(options), capture=capture)


def asked_of_stream(command: Command, given: Input | None, window: int | None, options: Options) -> Asked:
    """Raises ``INVALID_REQUEST``."""
    asked = ask(command, options, given=given, otherwise=CALL_LIMITS, window=window)
    if command.stdin == STDIN_OPEN:
        raise invalid("stdin", "is open, and nobody could write to it", "give `input`, or use spawn()")
    return asked


class Stream:
    """One program's events: ``output`` (`Event.stream`, `Event.data`), and what becomes of it.

    The last is ``run.finished``, whatever ended the run; its ``result`` is what `wait` returns.  One that
    was called off before its start has no events.  Iterating goes on where it was left; to be
    iterated by one task at a time.
    """

    def __init__(self, asked: Asked, verbs: Callable[[], Awaitable[Verbs]], *, capture: bool) -> None:
        self._asked = asked
        self._verbs = verbs
        self._capture = capture
        self._entered: Held | None = None
        self._cursor = 0
        self._taken = Taken(asked.window)

    async def __aenter__(self) -> Self:
        if self._entered is not None:
            raise invalid("stream", "is entered a second time", "call stream() again")
        self._entered = Held(await self._verbs(), self._asked, capture=self._capture)
        try:
            await self._entered.start()
        except BaseException as error:
            await self.__aexit__(type(error), error, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._held.leave(error)

    def __del__(self) -> None:
        if self._entered is not None:
            self._entered.dropped(self)

    @property
    def run_id(self) -> str | None:
        """None where it was called off before its start."""
        return self._held.run_id

    async def __aiter__(self) -> AsyncGenerator[Event, None]:
        held = self._held
        async with aclosing(events_of(held, self._cursor)) as events:
            async for event in events:
                self._cursor = event.seq
                yield event
                # With the next one asked for, this one is done with.
                counts = self._taken.due(event)
                if counts is not None and held.run_id is not None:
                    # Of a run that is over it is no failure. One that cannot be told must not be waited for
                    # in silence.
                    await held.verbs.acknowledge(held.run_id, **counts)
                    self._taken.told(counts)

    async def lines(self) -> AsyncGenerator[Line, None]:
        """The output as lines; one of more than 64 KiB comes in pieces, so memory stays bounded."""
        cut = Lines()
        async with aclosing(self.__aiter__()) as events:
            async for event in events:
                for line in cut.of(event):
                    yield line
        for line in cut.finish():
            yield line

    async def wait(self) -> RunResult:
        """How it ended, once it has.  What was not iterated over is passed by.

        Raises as `run` does.
        """
        if not self._held.over:
            async with aclosing(self.__aiter__()) as events:
                async for _ in events:
                    pass
        return await self._held.result()

    @property
    def _held(self) -> Held:
        if self._entered is None:
            raise invalid("stream", "has not been entered", "async with stream(command) as events")
        return self._entered
