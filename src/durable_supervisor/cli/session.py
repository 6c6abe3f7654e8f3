"""Opening the product for one call of the command line."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from durable_supervisor.model.errors import ErrorCode, SupervisorError, invalid

from . import out
from .escape import escape_text

if TYPE_CHECKING:
    from durable_supervisor.api.owner import Owner
    from durable_supervisor.api.verbs import Reading

    from .options import Settings

_PATIENCE: Final = 1.0  # seconds of silence before a person is told what is waited for
_NEWEST: Final = 1000


def drive(work: Coroutine[Any, Any, int]) -> int:
    """Run one verb to its exit code.  Ctrl-C cancels it (KeyboardInterrupt)."""
    import asyncio

    return asyncio.run(work)


@asynccontextmanager
async def observing(shared: Settings, run: str = "") -> AsyncIterator[Reading]:
    """For reading and controls, which need no owner: the files and workers themselves, or --socket.

    A ``run`` that names a bundle is read from there.
    """
    reading = await _reading(shared, run)
    try:
        yield reading
    except SupervisorError as error:
        if error.code is ErrorCode.UNKNOWN_RUN:
            await _name_the_run(error, shared, reading)
        raise
    finally:
        await reading.close()


def is_bundle(run: str) -> bool:
    """Does the word name a file?  What may be the beginning of a run id never does."""
    return "/" in run or (not run.isalnum() and os.path.isfile(run))


def needs_files(shared: Settings) -> None:
    """Raises INVALID_REQUEST with --socket: the verb reads what is stored, which no service hands out."""
    if shared.socket is not None:
        raise invalid("socket", "a service does not hand its files out", "use --state-dir, on its machine")


async def _reading(shared: Settings, run: str = "") -> Reading:
    if is_bundle(run):
        from durable_supervisor.bundle.reader import BundleReader

        return BundleReader(run)
    if shared.socket is not None:
        from durable_supervisor.client.aio import AsyncClient

        return await AsyncClient.connect(socket=shared.socket)
    from durable_supervisor.supervisor.observer import Observer

    return Observer.open(shared.state_dir)


async def _name_the_run(error: SupervisorError, shared: Settings, reading: Reading) -> None:
    """Who gave a request id for a run id is told the run id."""
    asked = str(error.details.get("run_id"))
    if is_bundle(asked):
        error.hint = "a bundle can be read, nothing else: inspect, events, logs, replay, report, list"
        return
    if shared.socket is None:
        from .complete import run_of_request

        run_id = run_of_request(shared.state_dir, asked)
    else:
        newest = (await reading.list(limit=_NEWEST)).runs
        run_id = next((view.id for view in newest if view.request_id == asked), None)
    if run_id is not None:
        error.hint = f"that is a request id; its run is {run_id}"


@asynccontextmanager
async def owning(shared: Settings, *, starting: bool = False) -> AsyncIterator[Owner]:
    """For starting and judging: the directory's service; where none answers, we own it meanwhile.

    Closing it leaves runs alone.  With --socket, that service or none.  ``starting``: a run, at once.
    """
    import asyncio

    from durable_supervisor.api.election import Terms
    from durable_supervisor.api.owner import Owner
    from durable_supervisor.process.places import state_directory

    passing = {"serve_queue": False}  # the limits are a longer-lived owner's
    terms = Terms(
        state_directory(shared.state_dir),
        socket=shared.socket,
        serve=False,
        owning=passing,
        ahead=starting,
    )
    owner = Owner(terms)
    waiting = asyncio.get_running_loop().call_later(_PATIENCE, _tell_who_owns, shared)
    try:
        await owner.seat()
        waiting.cancel()
        yield owner
    finally:
        waiting.cancel()
        await owner.close()


def _tell_who_owns(shared: Settings) -> None:
    """A person at a terminal learns what the silence is about."""
    from durable_supervisor.supervisor.state_dir import locate, owner_pid

    place = locate(shared.state_dir)
    pid = owner_pid(place)
    if pid not in (None, os.getpid()) and out.is_terminal(out.STDERR):
        out.note(escape_text(f"waiting for process {pid}, which owns {place.path}..."))
