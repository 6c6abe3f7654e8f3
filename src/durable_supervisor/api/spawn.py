"""`spawn`: a program to talk to, for as long as it lives."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, Unpack

from ..model.answers import ControlReceipt, StopReceipt
from ..model.arguments import BytesLike
from ..model.command import STDIN_OPEN, Command, Limits
from ..model.errors import invalid
from ..model.events import Event
from ..model.result import RunResult
from ..model.terminal import Terminal
from ..supervisor.loop.pending import Opening
from .asked import Asked, Options, ask
from .ending import events_of
from .held import Held
from .verbs import Verbs
from .whose import verbs_of


def spawn(
    command: Command, *, pty: bool | Terminal = False, capture: bool = False, **options: Unpack[Options]
) -> Spawning:
    """Start ``command``, and answer with a handle on it: ``async with spawn(command) as process``.

    Or ``process = await spawn(command)``, and `Process.close` in the end.

    Its stdin is open, unless the command has one.  ``pty``: with a terminal, as `Command` has it.
    ``capture``: `Process.wait` answers with all the output that is kept.  Without limits there is no
    deadline.  The others: `Options`.

    Raises what `run` does before anything was executed.
    """
    asked = asked_of_spawn(command, pty, options)

    async def started() -> Process:
        return await begin(await verbs_of(options), asked, capture=capture)

    return Spawning(started)


def asked_of_spawn(command: Command, pty: bool | Terminal, options: Options) -> Asked:
    """Raises ``INVALID_REQUEST``."""
    asked = ask(command, options, otherwise=Limits())
    command = asked.command
    if not isinstance(pty, bool | Terminal):
        raise invalid("pty", "must be true, false or a Terminal", "Terminal(columns=120, rows=40)")
    if pty and command.pty is None:
        command = command.replace(pty=Terminal() if pty is True else pty)
    if command.stdin is None and command.pty is None:  # a terminal is open as it is
        command = command.replace(stdin=STDIN_OPEN)
    return replace(asked, command=command)


async def begin(verbs: Verbs, asked: Asked, *, capture: bool) -> Process:
    """Started, or nothing left of it."""
    process = Process(Held(verbs, asked, capture=capture))
    try:
        await process._held.start()
    except BaseException as error:
        await process.__aexit__(type(error), error, None)
        raise
    return process


class Process:
    """A running program.  `close` it, or use it with ``async with``: that ends it, if it has not ended."""

    def __init__(self, held: Held) -> None:
        self._held = held

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._held.leave(error)

    def __del__(self) -> None:
        self._held.dropped(self)

    @property
    def run_id(self) -> str | None:
        """None where it was called off before its start."""
        return self._held.run_id

    async def write_stdin(
        self, data: BytesLike, *, eof: bool = False, timeout: float = 30.0
    ) -> ControlReceipt:
        """See `Observer.write_stdin`."""
        return await self._held.verbs.write_stdin(self._held.known_id(), data, eof=eof, timeout=timeout)

    async def close_stdin(self, *, timeout: float = 30.0) -> ControlReceipt:
        """What was written before still gets there."""
        return await self.write_stdin(b"", eof=True, timeout=timeout)

    async def resize(self, columns: int, rows: int, *, timeout: float = 5.0) -> ControlReceipt:
        """See `Observer.resize`."""
        return await self._held.verbs.resize(self._held.known_id(), columns, rows, timeout=timeout)

    async def signal(
        self, signo: int | str, *, target: str = "leader", timeout: float = 5.0
    ) -> ControlReceipt:
        """See `Observer.signal`."""
        return await self._held.verbs.signal(self._held.known_id(), signo, target=target, timeout=timeout)

    def events(self, *, after: int = 0) -> AsyncGenerator[Event, None]:
        """Every event after the cursor, each once, until the run is over; see `Stream` for the last one.

        Any number of iterations may go on beside each other.  Ending one ends nothing else.
        """
        return events_of(self._held, after)

    async def terminate(self, grace: float | None = None) -> StopReceipt:
        """End the whole tree, as `Supervisor.stop`; returns when it is over."""
        return await self._held.stop(grace)

    async def wait(self, timeout: float | None = None) -> RunResult:
        """How it ended, once it has.  Raises as `run` does, and ``WAIT_TIMEOUT``; neither that nor a
        cancellation ends the program.
        """
        return await self._held.result(timeout)

    async def close(self) -> None:
        """End the program, if it has not ended, and return when nothing of it is left.  Idempotent."""
        await self.__aexit__(None, None, None)


class Spawning(Opening[Process]):
    """A program about to be started: enter it, or await it."""

    async def __aexit__(self, *exc: Any) -> None:
        """As `Process` does: what ends the context bears on what becomes of a detached run."""
        if self._opened is not None:
            await self._opened.__aexit__(*exc)
