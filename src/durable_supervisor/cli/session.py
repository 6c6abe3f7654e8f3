"""Opening the product for one call of the command line."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from durable_supervisor.model.errors import ErrorCode, SupervisorError

from . import out
from .escape import escape_text

if TYPE_CHECKING:
    from durable_supervisor.supervisor.observer import Observer
    from durable_supervisor.supervisor.supervisor import Supervisor

    from .options import Settings

_PATIENCE: Final = 1.0  # seconds of silence before a person is told what is waited for


def drive(work: Coroutine[Any, Any, int]) -> int:
    """Run one verb to its exit code.  Ctrl-C cancels it (KeyboardInterrupt)."""
    import asyncio

    return asyncio.run(work)


@asynccontextmanager
async def observing(shared: Settings) -> AsyncIterator[Observer]:
    """For reading and controls: needs no ownership and no live supervisor."""
    from durable_supervisor.supervisor.observer import Observer

    async with Observer.open(shared.state_dir) as observer:
        try:
            yield observer
        except SupervisorError as error:
            if error.code is ErrorCode.UNKNOWN_RUN:
                _name_the_run(error, shared)
            raise


def _name_the_run(error: SupervisorError, shared: Settings) -> None:
    """Who gave a request id for a run id is told the run id."""
    from .complete import run_of_request

    run_id = run_of_request(shared.state_dir, str(error.details.get("run_id")))
    if run_id is not None:
        error.hint = f"that is a request id; its run is {run_id}"


@asynccontextmanager
async def owning(shared: Settings) -> AsyncIterator[Supervisor]:
    """For starting and judging: owns the state directory while open; closing leaves runs alone."""
    import asyncio

    from durable_supervisor.supervisor.supervisor import Supervisor

    waiting = asyncio.get_running_loop().call_later(_PATIENCE, _tell_who_owns, shared)
    try:
        async with Supervisor.open(shared.state_dir) as supervisor:
            waiting.cancel()
            yield supervisor
    finally:
        waiting.cancel()


def _tell_who_owns(shared: Settings) -> None:
    """A person at a terminal learns what the silence is about."""
    from durable_supervisor.supervisor.state_dir import locate, owner_pid

    place = locate(shared.state_dir)
    pid = owner_pid(place)
    if pid not in (None, os.getpid()) and out.is_terminal(out.STDERR):
        out.note(escape_text(f"waiting for process {pid}, which owns {place.path}..."))
